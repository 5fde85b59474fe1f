// Generated from appliance.proto by `cargo xtask generate`: change that file, not this one.

pub mod r#blockyard {
    pub mod r#appliance {
        /// The agent runs, and has the disks.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Ready {
            /// of this protocol
            pub r#version: u32,
            /// as `uname -r` has it
            pub r#kernel: ::alloc::string::String,
        }
        impl Ready {}
        impl ::micropb::MessageDecode for Ready {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#version;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#kernel;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Ready {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Ready.kernel) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#version;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#kernel;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#version;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#kernel;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// A file system, and where it shall be, or is.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct MountPoint {
            /// vda1, vg/root, btrfsvol:/dev/vda1/@, loop:/a/file/of/what/is/mounted; empty: whatever is found to be the root
            pub r#device: ::alloc::string::String,
            /// absolute
            pub r#directory: ::alloc::vec::Vec<u8>,
            /// ext4; empty: whatever it is found to be
            pub r#type: ::alloc::string::String,
            /// from the agent: what is worth telling, such as a journal that was not replayed
            pub r#note: ::alloc::string::String,
            /// as `mount -o` has them
            pub r#options: ::alloc::vec::Vec<u8>,
        }
        impl MountPoint {}
        impl ::micropb::MessageDecode for MountPoint {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#directory;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#type;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#note;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#options;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for MountPoint {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.MountPoint.device) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.MountPoint.directory) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.MountPoint.type) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.MountPoint.note) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.MountPoint.options) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#type;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#note;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(34u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#options;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(42u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#type;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#note;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#options;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// Mount file systems: those that are named, or else the root file system that is found by looking, and what its fstab says.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Mount {
            pub r#read_only: bool,
            pub r#synchronous: bool,
            /// the first so many are images
            pub r#disks: u32,
            /// the root first
            pub r#points: ::alloc::vec::Vec<MountPoint>,
        }
        impl Mount {}
        impl ::micropb::MessageDecode for Mount {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#read_only;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#synchronous;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: MountPoint = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#points.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Mount {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Mount.points) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#read_only;
                    if *val_ref {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#synchronous;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#points.iter().enumerate() {
                        encoder.encode_varint32(34u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#read_only;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#synchronous;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    for (i, val_ref) in self.r#points.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                size
            }
        }
        /// Unmount all. When it is done, what was written is on stable storage as far as the disks are.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Unmount {}
        impl Unmount {}
        impl ::micropb::MessageDecode for Unmount {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Unmount {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                size
            }
        }
        /// Look at files: a stream of Records.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Walk {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            /// how deep: 0 is the paths themselves, 1 what is in them
            pub r#depth: u32,
            /// owners' names and links' targets too
            pub r#details: bool,
            /// paths that are links: look at what they lead to
            pub r#follow: bool,
            pub r#one_file_system: bool,
            /// of regular files: the extended ones that users set; and modes without access control lists
            pub r#attributes: bool,
            /// of directories: whether something is in them
            pub r#emptiness: bool,
        }
        impl Walk {}
        impl ::micropb::MessageDecode for Walk {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#depth;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#details;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#follow;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#one_file_system;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#attributes;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        70u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#emptiness;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Walk {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Walk.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#depth;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#details;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#follow;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#one_file_system;
                    if *val_ref {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#attributes;
                    if *val_ref {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#emptiness;
                    if *val_ref {
                        encoder.encode_varint32(560u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#depth;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#details;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#follow;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#one_file_system;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#attributes;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#emptiness;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// A file that was looked at.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Entry {
            /// within the directory that came before; a path as it was given where none did
            pub r#name: ::alloc::vec::Vec<u8>,
            /// type and permissions, as stat has them
            pub r#mode: u32,
            pub r#inode: u64,
            /// of the file system
            pub r#device: u64,
            pub r#links: u64,
            pub r#user_id: u32,
            pub r#group_id: u32,
            /// bytes
            pub r#size: u64,
            /// of 512 bytes
            pub r#blocks: u64,
            /// seconds since 1970
            pub r#modified: i64,
            pub r#modified_ns: u32,
            pub r#accessed: i64,
            pub r#changed: i64,
            /// of the device that it is
            pub r#major: u32,
            pub r#minor: u32,
            /// its owner's name, as the image's /etc/passwd has it; may be empty
            pub r#user: ::alloc::string::String,
            pub r#group: ::alloc::string::String,
            /// of a link
            pub r#target: ::alloc::vec::Vec<u8>,
            /// 2 KiB at most
            pub r#attributes: ::alloc::vec::Vec<Attribute>,
            /// it has more than that
            pub r#more_attributes: bool,
            pub r#accessed_ns: u32,
            pub r#changed_ns: u32,
            /// a directory with nothing in it, if that was asked for
            pub r#empty: bool,
        }
        impl Entry {}
        impl ::micropb::MessageDecode for Entry {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#name;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#mode;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#inode;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#links;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#user_id;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        7u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#group_id;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        8u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        9u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#blocks;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        10u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#modified;
                            {
                                let val = decoder.decode_int64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        11u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#modified_ns;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        12u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#accessed;
                            {
                                let val = decoder.decode_int64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        13u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#changed;
                            {
                                let val = decoder.decode_int64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        14u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#major;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        15u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#minor;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        16u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#user;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        17u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#group;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        18u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#target;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        19u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: Attribute = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#attributes.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        20u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#more_attributes;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        70u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#accessed_ns;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        71u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#changed_ns;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        72u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#empty;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Entry {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Entry.name) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Entry.user) unbounded string or bytes"),
                    | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Entry.group) unbounded string or bytes"),
                    | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Entry.target) unbounded string or bytes"),
                    | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Entry.attributes) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#name;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#inode;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#device;
                    if *val_ref != 0 {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#links;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#user_id;
                    if *val_ref != 0 {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#group_id;
                    if *val_ref != 0 {
                        encoder.encode_varint32(56u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(64u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#blocks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(72u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#modified;
                    if *val_ref != 0 {
                        encoder.encode_varint32(80u32)?;
                        encoder.encode_int64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#modified_ns;
                    if *val_ref != 0 {
                        encoder.encode_varint32(88u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#accessed;
                    if *val_ref != 0 {
                        encoder.encode_varint32(96u32)?;
                        encoder.encode_int64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#changed;
                    if *val_ref != 0 {
                        encoder.encode_varint32(104u32)?;
                        encoder.encode_int64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#major;
                    if *val_ref != 0 {
                        encoder.encode_varint32(112u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#minor;
                    if *val_ref != 0 {
                        encoder.encode_varint32(120u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#user;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(130u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#group;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(138u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(146u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#attributes.iter().enumerate() {
                        encoder.encode_varint32(154u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#more_attributes;
                    if *val_ref {
                        encoder.encode_varint32(160u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#accessed_ns;
                    if *val_ref != 0 {
                        encoder.encode_varint32(560u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#changed_ns;
                    if *val_ref != 0 {
                        encoder.encode_varint32(568u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#empty;
                    if *val_ref {
                        encoder.encode_varint32(576u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#name;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#inode;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#device;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#links;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#user_id;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#group_id;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#blocks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#modified;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_int64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#modified_ns;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#accessed;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_int64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#changed;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_int64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#major;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#minor;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#user;
                    if !val_ref.is_empty() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#group;
                    if !val_ref.is_empty() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#attributes.iter().enumerate() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#more_attributes;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#accessed_ns;
                    if *val_ref != 0 {
                        size += 2usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#changed_ns;
                    if *val_ref != 0 {
                        size += 2usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#empty;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// An extended attribute.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Attribute {
            pub r#name: ::alloc::vec::Vec<u8>,
            pub r#value: ::alloc::vec::Vec<u8>,
        }
        impl Attribute {}
        impl ::micropb::MessageDecode for Attribute {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#name;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#value;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Attribute {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Attribute.name) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Attribute.value) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#name;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#value;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#name;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#value;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// The entries that follow are in this directory.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Directory {
            pub r#path: ::alloc::vec::Vec<u8>,
            pub r#depth: u32,
        }
        impl Directory {}
        impl ::micropb::MessageDecode for Directory {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#depth;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Directory {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Directory.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#depth;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#depth;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Something that could not be done.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Failure {
            /// 0: the sentence says it all
            pub r#errno: u32,
            /// with which file, if with one
            pub r#path: ::alloc::vec::Vec<u8>,
            /// what was being done, or what is wrong
            pub r#sentence: ::alloc::string::String,
        }
        impl Failure {}
        impl ::micropb::MessageDecode for Failure {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#errno;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#sentence;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Failure {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Failure.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Failure.sentence) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#errno;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#sentence;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#errno;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#sentence;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// Part of a listing.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub enum Record {
            Entry(Entry),
            Directory(Directory),
            Failure(Failure),
            FileSystem(FileSystem),
            Output(Output),
            Volume(Volume),
            Root(Root),
            RootFile(RootFile),
            Attribute(Attribute),
            #[default]
            None,
        }
        impl ::micropb::MessageDecode for Record {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            let mut_ref = loop {
                                if let Self::Entry(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Entry(::core::default::Default::default());
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        2u32 => {
                            let mut_ref = loop {
                                if let Self::Directory(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Directory(
                                    ::core::default::Default::default(),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        3u32 => {
                            let mut_ref = loop {
                                if let Self::Failure(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Failure(::core::default::Default::default());
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        4u32 => {
                            let mut_ref = loop {
                                if let Self::FileSystem(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::FileSystem(
                                    ::core::default::Default::default(),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        30u32 => {
                            let mut_ref = loop {
                                if let Self::Output(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Output(::core::default::Default::default());
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        20u32 => {
                            let mut_ref = loop {
                                if let Self::Volume(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Volume(::core::default::Default::default());
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        40u32 => {
                            let mut_ref = loop {
                                if let Self::Root(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Root(::core::default::Default::default());
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        41u32 => {
                            let mut_ref = loop {
                                if let Self::RootFile(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::RootFile(::core::default::Default::default());
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        70u32 => {
                            let mut_ref = loop {
                                if let Self::Attribute(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Attribute(
                                    ::core::default::Default::default(),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Record {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match 'oneof: {
                    let mut max_size = 0;
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Entry as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Directory as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Failure as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< FileSystem as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Output as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Volume as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Root as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< RootFile as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Attribute as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    ::core::result::Result::Ok(max_size)
                } {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                match &self {
                    Self::Entry(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(10u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::Directory(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::Failure(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(26u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::FileSystem(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(34u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::Output(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(242u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::Volume(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(162u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::Root(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(322u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::RootFile(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(330u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::Attribute(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(562u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                    Self::None => {}
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                match &self {
                    Self::Entry(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::Directory(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::Failure(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::FileSystem(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::Output(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::Volume(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::Root(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::RootFile(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::Attribute(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                    Self::None => {}
                }
                size
            }
        }
        /// How full the mounted file systems are: a stream of Records.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Usage {}
        impl Usage {}
        impl ::micropb::MessageDecode for Usage {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Usage {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                size
            }
        }
        /// A mounted file system.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct FileSystem {
            pub r#device: ::alloc::string::String,
            pub r#directory: ::alloc::vec::Vec<u8>,
            pub r#type: ::alloc::string::String,
            /// bytes
            pub r#block_size: u64,
            pub r#blocks: u64,
            /// blocks
            pub r#free: u64,
            /// blocks, for users who are not root
            pub r#available: u64,
            pub r#files: u64,
            pub r#free_files: u64,
        }
        impl FileSystem {}
        impl ::micropb::MessageDecode for FileSystem {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#directory;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#type;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#block_size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#blocks;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#free;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        7u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#available;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        8u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#files;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        9u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#free_files;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for FileSystem {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.FileSystem.device) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.FileSystem.directory) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.FileSystem.type) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#type;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#block_size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#blocks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#free;
                    if *val_ref != 0 {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#available;
                    if *val_ref != 0 {
                        encoder.encode_varint32(56u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#files;
                    if *val_ref != 0 {
                        encoder.encode_varint32(64u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#free_files;
                    if *val_ref != 0 {
                        encoder.encode_varint32(72u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#type;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#block_size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#blocks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#free;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#available;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#files;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#free_files;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// The bytes of files, one after another, as a stream.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Read {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
        }
        impl Read {}
        impl ::micropb::MessageDecode for Read {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Read {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Read.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// Write a file out of the source disk: raw bytes from its start, or a stream.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Store {
            /// the file, or a directory that it goes into
            pub r#path: ::alloc::vec::Vec<u8>,
            /// what it is called there, if that is a directory
            pub r#name: ::alloc::vec::Vec<u8>,
            /// bytes, if it is not a stream
            pub r#size: u64,
            pub r#stream: bool,
            /// permissions of a new file
            pub r#mode: u32,
            pub r#user_id: u32,
            pub r#group_id: u32,
            /// seconds since 1970
            pub r#modified: i64,
            pub r#modified_ns: u32,
            /// where there is data, in order; none: everywhere
            pub r#data: ::alloc::vec::Vec<Range>,
            /// behind what the file has, whose attributes stay
            pub r#append: bool,
            /// the attributes of a file that is there stay, but for its time
            pub r#keep: bool,
            /// 8 KiB at most
            pub r#attributes: ::alloc::vec::Vec<Attribute>,
        }
        impl Store {}
        impl ::micropb::MessageDecode for Store {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#name;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#stream;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#mode;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#user_id;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        7u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#group_id;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        8u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#modified;
                            {
                                let val = decoder.decode_int64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        9u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#modified_ns;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        10u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: Range = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#data.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        30u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#append;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        31u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#keep;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        40u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: Attribute = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#attributes.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Store {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Store.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Store.name) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Store.data) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Store.attributes) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#name;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#stream;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#user_id;
                    if *val_ref != 0 {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#group_id;
                    if *val_ref != 0 {
                        encoder.encode_varint32(56u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#modified;
                    if *val_ref != 0 {
                        encoder.encode_varint32(64u32)?;
                        encoder.encode_int64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#modified_ns;
                    if *val_ref != 0 {
                        encoder.encode_varint32(72u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#data.iter().enumerate() {
                        encoder.encode_varint32(82u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#append;
                    if *val_ref {
                        encoder.encode_varint32(240u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#keep;
                    if *val_ref {
                        encoder.encode_varint32(248u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#attributes.iter().enumerate() {
                        encoder.encode_varint32(322u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#name;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#stream;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#user_id;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#group_id;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#modified;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_int64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#modified_ns;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    for (i, val_ref) in self.r#data.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#append;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#keep;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                {
                    for (i, val_ref) in self.r#attributes.iter().enumerate() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                size
            }
        }
        /// Bytes of a file.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Range {
            pub r#offset: u64,
            pub r#length: u64,
        }
        impl Range {}
        impl ::micropb::MessageDecode for Range {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#offset;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#length;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Range {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#offset;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#length;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#offset;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#length;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Copy a file's data to the same places of the sink disk; the rest is zeros.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Fetch {
            pub r#path: ::alloc::vec::Vec<u8>,
            /// what it was found to have
            pub r#size: u64,
        }
        impl Fetch {}
        impl ::micropb::MessageDecode for Fetch {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Fetch {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Fetch.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Unpack the tar archive that comes as a stream.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct TarIn {
            pub r#directory: ::alloc::vec::Vec<u8>,
            /// the directory must be there; without, it is made
            pub r#into: bool,
            /// files get the archive's owners; without, root's
            pub r#own: bool,
            /// a file that is there is written into, also through a link, and not replaced
            pub r#in_place: bool,
        }
        impl TarIn {}
        impl ::micropb::MessageDecode for TarIn {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#directory;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#into;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#own;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        90u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#in_place;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for TarIn {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.TarIn.directory) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#into;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#own;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#in_place;
                    if *val_ref {
                        encoder.encode_varint32(720u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#into;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#own;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#in_place;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// Pack files as a stream that is a tar archive.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct TarOut {
            /// which paths are relative to
            pub r#directory: ::alloc::vec::Vec<u8>,
            /// none: all that is in the directory
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#compression: Compression,
            /// patterns for paths in the directory, or for names below it: what they match is left out
            pub r#excludes: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            /// sockets are packed, in star's way; without, they are left out, which is noted
            pub r#sockets: bool,
        }
        impl TarOut {}
        impl ::micropb::MessageDecode for TarOut {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#directory;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#compression;
                            {
                                let val = decoder
                                    .decode_int32()
                                    .map(|n| Compression(n as _))?;
                                let val_ref = &val;
                                if val_ref.0 != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        70u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#excludes.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        90u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#sockets;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for TarOut {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.TarOut.directory) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.TarOut.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(Compression::_MAX_SIZE), | size | size +
                    1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.TarOut.excludes) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#compression;
                    if val_ref.0 != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_int32(val_ref.0 as _)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#excludes.iter().enumerate() {
                        encoder.encode_varint32(562u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#sockets;
                    if *val_ref {
                        encoder.encode_varint32(720u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#compression;
                    if val_ref.0 != 0 {
                        size += 1usize + ::micropb::size::sizeof_int32(val_ref.0 as _);
                    }
                }
                {
                    for (i, val_ref) in self.r#excludes.iter().enumerate() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#sockets;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// Remove files.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Remove {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#recursive: bool,
            /// what is not there is no failure
            pub r#force: bool,
            /// empty directories too
            pub r#directory: bool,
        }
        impl Remove {}
        impl ::micropb::MessageDecode for Remove {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#recursive;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#force;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#directory;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Remove {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Remove.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#force;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#force;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct MakeDirectory {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#parents: bool,
            pub r#mode: u32,
        }
        impl MakeDirectory {}
        impl ::micropb::MessageDecode for MakeDirectory {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#parents;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#mode;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for MakeDirectory {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.MakeDirectory.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#parents;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#parents;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Move files into a directory, or one to a name.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Rename {
            pub r#sources: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#target: ::alloc::vec::Vec<u8>,
            pub r#no_clobber: bool,
            /// the sources come as a stream, a NUL after each
            pub r#streamed: bool,
        }
        impl Rename {}
        impl ::micropb::MessageDecode for Rename {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#sources.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#target;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#no_clobber;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        90u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#streamed;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Rename {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Rename.sources) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Rename.target) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#sources.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#no_clobber;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#streamed;
                    if *val_ref {
                        encoder.encode_varint32(720u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#sources.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#no_clobber;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#streamed;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// Link to a file.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Link {
            /// as written into a symbolic link; a path otherwise
            pub r#target: ::alloc::vec::Vec<u8>,
            /// the link, or a directory that it goes into
            pub r#path: ::alloc::vec::Vec<u8>,
            pub r#symbolic: bool,
            /// replace what is there
            pub r#force: bool,
        }
        impl Link {}
        impl ::micropb::MessageDecode for Link {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#target;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#symbolic;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#force;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Link {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Link.target) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Link.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#symbolic;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#force;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#symbolic;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#force;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// A part of a change of permissions, as chmod(1) has them: for `affected` bits, `operator` one of + - =.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct ModeClause {
            /// mask of permission bits
            pub r#affected: u32,
            /// '+', '-', '='
            pub r#operator: u32,
            /// permissions within `affected`
            pub r#bits: u32,
            /// X: execute, for directories and what somebody may execute already
            pub r#if_executable: bool,
            /// 'u', 'g', 'o': take that one's bits; 0: `bits`
            pub r#copy_from: u32,
        }
        impl ModeClause {}
        impl ::micropb::MessageDecode for ModeClause {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#affected;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#operator;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#bits;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#if_executable;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#copy_from;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ModeClause {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#affected;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#operator;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#bits;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#if_executable;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#copy_from;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#affected;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#operator;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#bits;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#if_executable;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#copy_from;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct ChangeMode {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#clauses: ::alloc::vec::Vec<ModeClause>,
            pub r#recursive: bool,
        }
        impl ChangeMode {}
        impl ::micropb::MessageDecode for ChangeMode {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ModeClause = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#clauses.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#recursive;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ChangeMode {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.ChangeMode.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.ChangeMode.clauses) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#clauses.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#clauses.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// Change owners. Names are those of the image's /etc/passwd and /etc/group.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct ChangeOwner {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            /// empty: stays
            pub r#user: ::alloc::string::String,
            /// empty: stays
            pub r#group: ::alloc::string::String,
            pub r#recursive: bool,
            pub r#no_dereference: bool,
        }
        impl ChangeOwner {}
        impl ::micropb::MessageDecode for ChangeOwner {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#user;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#group;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#recursive;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#no_dereference;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ChangeOwner {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.ChangeOwner.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ChangeOwner.user) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ChangeOwner.group) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#user;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#group;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#no_dereference;
                    if *val_ref {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#user;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#group;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#no_dereference;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// Everything to stable storage.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Sync {}
        impl Sync {}
        impl ::micropb::MessageDecode for Sync {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Sync {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                size
            }
        }
        /// Read so many bytes of the source disk, and do nothing with them: what a transfer alone takes.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Discard {
            pub r#size: u64,
        }
        impl Discard {}
        impl ::micropb::MessageDecode for Discard {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Discard {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Copy files within the image: into a directory, or one to a name. Owners, times and extended attributes are kept if wanted.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct CopyFiles {
            pub r#sources: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#target: ::alloc::vec::Vec<u8>,
            pub r#recursive: bool,
            pub r#archive: bool,
            /// the sources come as a stream, a NUL after each
            pub r#streamed: bool,
        }
        impl CopyFiles {}
        impl ::micropb::MessageDecode for CopyFiles {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#sources.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#target;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#recursive;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#archive;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        90u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#streamed;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for CopyFiles {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.CopyFiles.sources) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.CopyFiles.target) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#sources.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#archive;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#streamed;
                    if *val_ref {
                        encoder.encode_varint32(720u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#sources.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#target;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#recursive;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#archive;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#streamed;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// Make a file of so many bytes, a pattern repeated.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Fill {
            pub r#path: ::alloc::vec::Vec<u8>,
            /// not empty
            pub r#pattern: ::alloc::vec::Vec<u8>,
            pub r#size: u64,
        }
        impl Fill {}
        impl ::micropb::MessageDecode for Fill {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#pattern;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Fill {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Fill.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Fill.pattern) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#pattern;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#pattern;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// One end of CopyBlocks.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub enum Place {
            /// of the image
            File(::alloc::vec::Vec<u8>),
            /// a disk or partition
            Device(::alloc::string::String),
            /// to or from the host
            Stream(bool),
            #[default]
            None,
        }
        impl ::micropb::MessageDecode for Place {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            let mut_ref = loop {
                                if let Self::File(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::File(::core::default::Default::default());
                            };
                            decoder
                                .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                        }
                        2u32 => {
                            let mut_ref = loop {
                                if let Self::Device(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Device(::core::default::Default::default());
                            };
                            decoder
                                .decode_string(mut_ref, ::micropb::Presence::Explicit)?;
                        }
                        3u32 => {
                            let mut_ref = loop {
                                if let Self::Stream(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Stream(::core::default::Default::default());
                            };
                            let val = decoder.decode_bool()?;
                            *mut_ref = val as _;
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Place {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match 'oneof: {
                    let mut max_size = 0;
                    match ::micropb::const_map!(
                        ::core::result::Result:: < usize, & 'static str >
                        ::Err("(.blockyard.appliance.Place.file) unbounded string or bytes"),
                        | size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::core::result::Result:: < usize, & 'static str >
                        ::Err("(.blockyard.appliance.Place.device) unbounded string or bytes"),
                        | size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::core::result::Result::Ok(1usize), | size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    ::core::result::Result::Ok(max_size)
                } {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                match &self {
                    Self::File(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                    Self::Device(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                    Self::Stream(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                    Self::None => {}
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                match &self {
                    Self::File(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                    Self::Device(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                    Self::Stream(val_ref) => {
                        let val_ref = &*val_ref;
                        size += 1usize + 1;
                    }
                    Self::None => {}
                }
                size
            }
        }
        /// dd(1): copy blocks of bytes from one place to another.
        #[derive(Debug, Default, Clone)]
        pub struct CopyBlocks {
            /// *Note:* The presence of this field is tracked separately in the `_has` field. It's recommended to access this field via the accessor rather than directly.
            pub r#input: Place,
            /// *Note:* The presence of this field is tracked separately in the `_has` field. It's recommended to access this field via the accessor rather than directly.
            pub r#output: Place,
            /// bytes
            pub r#block_size: u64,
            /// blocks; UINT64_MAX: up to the end
            pub r#count: u64,
            /// blocks of the input
            pub r#skip: u64,
            /// blocks of the output
            pub r#seek: u64,
            pub r#no_truncate: bool,
            /// the first so many are images
            pub r#disks: u32,
            /// Tracks presence of optional and message fields
            pub _has: CopyBlocks_::_Hazzer,
        }
        impl ::core::cmp::PartialEq for CopyBlocks {
            fn eq(&self, other: &Self) -> bool {
                let mut ret = true;
                ret &= (self.r#input() == other.r#input());
                ret &= (self.r#output() == other.r#output());
                ret &= (self.r#block_size == other.r#block_size);
                ret &= (self.r#count == other.r#count);
                ret &= (self.r#skip == other.r#skip);
                ret &= (self.r#seek == other.r#seek);
                ret &= (self.r#no_truncate == other.r#no_truncate);
                ret &= (self.r#disks == other.r#disks);
                ret
            }
        }
        impl CopyBlocks {
            /// Return a reference to `input` as an `Option`
            #[inline]
            pub fn r#input(&self) -> ::core::option::Option<&Place> {
                self._has.r#input().then_some(&self.r#input)
            }
            /// Return a reference to `output` as an `Option`
            #[inline]
            pub fn r#output(&self) -> ::core::option::Option<&Place> {
                self._has.r#output().then_some(&self.r#output)
            }
        }
        impl ::micropb::MessageDecode for CopyBlocks {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#input;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            self._has.set_input();
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#output;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            self._has.set_output();
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#block_size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#count;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#skip;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#seek;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        7u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#no_truncate;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        8u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for CopyBlocks {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::micropb::const_map!(< Place as ::micropb::MessageEncode >
                    ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                    size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::micropb::const_map!(< Place as ::micropb::MessageEncode >
                    ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                    size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#input() {
                        encoder.encode_varint32(10u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#output() {
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#block_size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#count;
                    if *val_ref != 0 {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#skip;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#seek;
                    if *val_ref != 0 {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#no_truncate;
                    if *val_ref {
                        encoder.encode_varint32(56u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(64u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#input() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#output() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#block_size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#count;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#skip;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#seek;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#no_truncate;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Inner types for `CopyBlocks`
        pub mod CopyBlocks_ {
            /// Compact bitfield for tracking presence of optional and message fields
            #[derive(Debug, Default, PartialEq, Clone, Copy)]
            pub struct _Hazzer([u8; 1]);
            impl _Hazzer {
                /// New hazzer with all fields set to off
                #[inline]
                pub const fn _new() -> Self {
                    Self([0; 1])
                }
                /// Query presence of `input`
                #[inline]
                pub const fn r#input(&self) -> bool {
                    (self.0[0] & 1) != 0
                }
                /// Set presence of `input`
                #[inline]
                pub const fn set_input(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem |= 1;
                    self
                }
                /// Clear presence of `input`
                #[inline]
                pub const fn clear_input(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem &= !1;
                    self
                }
                /// Builder method that sets the presence of `input`. Useful for initializing the Hazzer.
                #[inline]
                pub const fn init_input(mut self) -> Self {
                    self.set_input();
                    self
                }
                /// Query presence of `output`
                #[inline]
                pub const fn r#output(&self) -> bool {
                    (self.0[0] & 2) != 0
                }
                /// Set presence of `output`
                #[inline]
                pub const fn set_output(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem |= 2;
                    self
                }
                /// Clear presence of `output`
                #[inline]
                pub const fn clear_output(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem &= !2;
                    self
                }
                /// Builder method that sets the presence of `output`. Useful for initializing the Hazzer.
                #[inline]
                pub const fn init_output(mut self) -> Self {
                    self.set_output();
                    self
                }
            }
        }
        /// Execute a program of the image in the image. Its outputs come as a stream of Records, its input is a stream.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Execute {
            /// the first is the program
            pub r#arguments: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            /// NAME=VALUE
            pub r#environment: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
        }
        impl Execute {}
        impl ::micropb::MessageDecode for Execute {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#arguments.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#environment.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Execute {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Execute.arguments) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Execute.environment) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#arguments.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#environment.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#arguments.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#environment.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// What a program has written; nothing, as a sign of life.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Output {
            /// to stderr
            pub r#is_error: bool,
            pub r#bytes: ::alloc::vec::Vec<u8>,
        }
        impl Output {}
        impl ::micropb::MessageDecode for Output {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#is_error;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#bytes;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Output {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Output.bytes) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#is_error;
                    if *val_ref {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#bytes;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#is_error;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#bytes;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// Make files that are not there, and set the times of all of them to now; set their length if one is given.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Touch {
            pub r#paths: ::alloc::vec::Vec<::alloc::vec::Vec<u8>>,
            pub r#no_create: bool,
            pub r#sets_size: bool,
            pub r#size: u64,
        }
        impl Touch {}
        impl ::micropb::MessageDecode for Touch {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::vec::Vec<u8> = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#paths.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#no_create;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#sets_size;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Touch {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Touch.paths) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#no_create;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#sets_size;
                    if *val_ref {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    for (i, val_ref) in self.r#paths.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#no_create;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#sets_size;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Read the partition tables of the images again.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct ReadPartitions {
            pub r#disks: u32,
        }
        impl ReadPartitions {}
        impl ::micropb::MessageDecode for ReadPartitions {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ReadPartitions {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Give up the request that is under way. It is answered; this is not.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Interrupt {}
        impl Interrupt {}
        impl ::micropb::MessageDecode for Interrupt {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Interrupt {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                size
            }
        }
        /// Unpack a tar archive that comes as a stream into the appliance's own root, not the image's: programs for RunTool.
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct InstallTools {}
        impl InstallTools {}
        impl ::micropb::MessageDecode for InstallTools {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for InstallTools {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                size
            }
        }
        #[derive(Debug, Default, PartialEq, Clone)]
        pub enum ToolArgument {
            Text(::alloc::vec::Vec<u8>),
            /// a volume of the image, by any of its names: the agent writes its path
            Device(::alloc::string::String),
            #[default]
            None,
        }
        impl ::micropb::MessageDecode for ToolArgument {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            let mut_ref = loop {
                                if let Self::Text(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Text(::core::default::Default::default());
                            };
                            decoder
                                .decode_bytes(mut_ref, ::micropb::Presence::Explicit)?;
                        }
                        2u32 => {
                            let mut_ref = loop {
                                if let Self::Device(variant) = self {
                                    break &mut *variant;
                                }
                                *self = Self::Device(::core::default::Default::default());
                            };
                            decoder
                                .decode_string(mut_ref, ::micropb::Presence::Explicit)?;
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ToolArgument {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match 'oneof: {
                    let mut max_size = 0;
                    match ::micropb::const_map!(
                        ::core::result::Result:: < usize, & 'static str >
                        ::Err("(.blockyard.appliance.ToolArgument.text) unbounded string or bytes"),
                        | size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::core::result::Result:: < usize, & 'static str >
                        ::Err("(.blockyard.appliance.ToolArgument.device) unbounded string or bytes"),
                        | size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    ::core::result::Result::Ok(max_size)
                } {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                match &self {
                    Self::Text(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                    Self::Device(val_ref) => {
                        let val_ref = &*val_ref;
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                    Self::None => {}
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                match &self {
                    Self::Text(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                    Self::Device(val_ref) => {
                        let val_ref = &*val_ref;
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                    Self::None => {}
                }
                size
            }
        }
        /// Execute a program that was installed, outside of the image, and wait for its end. It is found in /tools/bin, its libraries in
        /// /tools/lib.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct RunTool {
            pub r#program: ::alloc::string::String,
            pub r#arguments: ::alloc::vec::Vec<ToolArgument>,
            pub r#stdin: ::alloc::vec::Vec<u8>,
            /// NAME=VALUE
            pub r#environment: ::alloc::vec::Vec<::alloc::string::String>,
            /// the first so many are images
            pub r#disks: u32,
            /// it changes the devices: they must not be mounted, and are flushed afterwards
            pub r#exclusive: bool,
        }
        impl RunTool {}
        impl ::micropb::MessageDecode for RunTool {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#program;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ToolArgument = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#arguments.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#stdin;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::string::String = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#environment.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#exclusive;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for RunTool {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.RunTool.program) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.RunTool.arguments) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.RunTool.stdin) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.RunTool.environment) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#program;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#arguments.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#stdin;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#environment.iter().enumerate() {
                        encoder.encode_varint32(34u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#exclusive;
                    if *val_ref {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#program;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#arguments.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#stdin;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#environment.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#exclusive;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// How a program ended.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct ProgramEnd {
            /// its exit status, if no signal ended it
            pub r#status: u32,
            pub r#signal: u32,
            /// what it wrote to its standard output: the first bytes and the last
            pub r#output: ::alloc::vec::Vec<u8>,
            /// the same of standard error
            pub r#errors: ::alloc::vec::Vec<u8>,
            /// bytes of both in between
            pub r#left_out: u64,
            /// the guest's kernel has killed something meanwhile, as there was no memory left: of Execute
            pub r#out_of_memory: bool,
        }
        impl ProgramEnd {}
        impl ::micropb::MessageDecode for ProgramEnd {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#status;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#signal;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#output;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#errors;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#left_out;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#out_of_memory;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ProgramEnd {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ProgramEnd.output) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ProgramEnd.errors) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#status;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#signal;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#output;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#errors;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(34u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#left_out;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#out_of_memory;
                    if *val_ref {
                        encoder.encode_varint32(48u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#status;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#signal;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#output;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#errors;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#left_out;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#out_of_memory;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// Look what is on the images' volumes, mounted or not: a stream of Records.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct ListVolumes {
            pub r#disks: u32,
            /// only this one, by any of its names; empty: all
            pub r#device: ::alloc::string::String,
        }
        impl ListVolumes {}
        impl ::micropb::MessageDecode for ListVolumes {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ListVolumes {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ListVolumes.device) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// A partition, or a disk without any.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Volume {
            /// vda1
            pub r#device: ::alloc::string::String,
            /// ext4; empty: nothing that is known
            pub r#type: ::alloc::string::String,
            pub r#uuid: ::alloc::string::String,
            pub r#label: ::alloc::string::String,
            /// bytes
            pub r#size: u64,
            /// where it is mounted; empty: it is not
            pub r#directory: ::alloc::vec::Vec<u8>,
            /// that it takes to make a key of a passphrase, if it is encrypted; 0: not known
            pub r#key_memory_bytes: u64,
            /// another volume is made of it
            pub r#used: bool,
            /// of the array that it is part of (md(4))
            pub r#raid_level: i32,
            /// that the array or the Btrfs has when it is complete; 0: it is no part of one
            pub r#raid_disks: u32,
        }
        impl Volume {}
        impl ::micropb::MessageDecode for Volume {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#type;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#uuid;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#label;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#size;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        6u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#directory;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        40u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#key_memory_bytes;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        41u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#used;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        42u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#raid_level;
                            {
                                let val = decoder.decode_int32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        43u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#raid_disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Volume {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Volume.device) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Volume.type) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Volume.uuid) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Volume.label) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Volume.directory) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#type;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#uuid;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#label;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(34u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(50u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#key_memory_bytes;
                    if *val_ref != 0 {
                        encoder.encode_varint32(320u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#used;
                    if *val_ref {
                        encoder.encode_varint32(328u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#raid_level;
                    if *val_ref != 0 {
                        encoder.encode_varint32(336u32)?;
                        encoder.encode_int32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#raid_disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(344u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#type;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#uuid;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#label;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#size;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#directory;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#key_memory_bytes;
                    if *val_ref != 0 {
                        size += 2usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#used;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                {
                    let val_ref = &self.r#raid_level;
                    if *val_ref != 0 {
                        size += 2usize + ::micropb::size::sizeof_int32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#raid_disks;
                    if *val_ref != 0 {
                        size += 2usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Look for operating systems: a stream of Records. Afterwards nothing is mounted.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Inspect {
            pub r#disks: u32,
            /// the only one, if its root is named
            pub r#points: ::alloc::vec::Vec<MountPoint>,
        }
        impl Inspect {}
        impl ::micropb::MessageDecode for Inspect {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#disks;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: MountPoint = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#points.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Inspect {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Inspect.points) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#points.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#disks;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    for (i, val_ref) in self.r#points.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                size
            }
        }
        /// The root file system of an operating system; the first is the one that is mounted if nobody says otherwise.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Root {
            pub r#device: ::alloc::string::String,
            /// the root, and what its fstab says
            pub r#mounted: ::alloc::vec::Vec<MountPoint>,
            pub r#notes: ::alloc::vec::Vec<::alloc::string::String>,
        }
        impl Root {}
        impl ::micropb::MessageDecode for Root {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: MountPoint = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#mounted.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::string::String = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#notes.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Root {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Root.device) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Root.mounted) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Root.notes) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#mounted.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#notes.iter().enumerate() {
                        encoder.encode_varint32(26u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    for (i, val_ref) in self.r#mounted.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    for (i, val_ref) in self.r#notes.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// A file below the root that came before.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct RootFile {
            /// without the first slash
            pub r#path: ::alloc::string::String,
            /// its first bytes
            pub r#content: ::alloc::vec::Vec<u8>,
        }
        impl RootFile {}
        impl ::micropb::MessageDecode for RootFile {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#content;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for RootFile {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.RootFile.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.RootFile.content) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#content;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#content;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// Give the free blocks of what is mounted back to the disks (ioctl FITRIM).
        #[derive(Debug, Default, PartialEq, Clone, Copy)]
        pub struct Trim {}
        impl Trim {}
        impl ::micropb::MessageDecode for Trim {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Trim {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                size
            }
        }
        /// What was given back.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Trimmed {
            pub r#device: ::alloc::string::String,
            pub r#bytes: u64,
        }
        impl Trimmed {}
        impl ::micropb::MessageDecode for Trimmed {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#device;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#bytes;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Trimmed {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Trimmed.device) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#bytes;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#device;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#bytes;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                size
            }
        }
        /// Make a file that is a device, a fifo or a socket.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct MakeNode {
            pub r#path: ::alloc::vec::Vec<u8>,
            /// type and permissions, as mknod(2) has them
            pub r#mode: u32,
            /// of a device
            pub r#major: u32,
            pub r#minor: u32,
        }
        impl MakeNode {}
        impl ::micropb::MessageDecode for MakeNode {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#mode;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#major;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#minor;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for MakeNode {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.MakeNode.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#major;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    let val_ref = &self.r#minor;
                    if *val_ref != 0 {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#mode;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#major;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    let val_ref = &self.r#minor;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                size
            }
        }
        /// All extended attributes of a file: a stream of Records.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct ReadAttributes {
            pub r#path: ::alloc::vec::Vec<u8>,
            /// if it is a link: of what it leads to
            pub r#follow: bool,
        }
        impl ReadAttributes {}
        impl ::micropb::MessageDecode for ReadAttributes {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#follow;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ReadAttributes {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ReadAttributes.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#follow;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#follow;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// Set an extended attribute of a file, or remove it.
        #[derive(Debug, Default, Clone)]
        pub struct SetAttribute {
            pub r#path: ::alloc::vec::Vec<u8>,
            pub r#follow: bool,
            /// *Note:* The presence of this field is tracked separately in the `_has` field. It's recommended to access this field via the accessor rather than directly.
            pub r#attribute: Attribute,
            pub r#remove: bool,
            /// Tracks presence of optional and message fields
            pub _has: SetAttribute_::_Hazzer,
        }
        impl ::core::cmp::PartialEq for SetAttribute {
            fn eq(&self, other: &Self) -> bool {
                let mut ret = true;
                ret &= (self.r#path == other.r#path);
                ret &= (self.r#follow == other.r#follow);
                ret &= (self.r#attribute() == other.r#attribute());
                ret &= (self.r#remove == other.r#remove);
                ret
            }
        }
        impl SetAttribute {
            /// Return a reference to `attribute` as an `Option`
            #[inline]
            pub fn r#attribute(&self) -> ::core::option::Option<&Attribute> {
                self._has.r#attribute().then_some(&self.r#attribute)
            }
        }
        impl ::micropb::MessageDecode for SetAttribute {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#follow;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        3u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#attribute;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            self._has.set_attribute();
                        }
                        4u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#remove;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for SetAttribute {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.SetAttribute.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::micropb::const_map!(< Attribute as ::micropb::MessageEncode >
                    ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                    size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#follow;
                    if *val_ref {
                        encoder.encode_varint32(16u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#attribute() {
                        encoder.encode_varint32(26u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#remove;
                    if *val_ref {
                        encoder.encode_varint32(32u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#follow;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#attribute() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#remove;
                    if *val_ref {
                        size += 1usize + 1;
                    }
                }
                size
            }
        }
        /// Inner types for `SetAttribute`
        pub mod SetAttribute_ {
            /// Compact bitfield for tracking presence of optional and message fields
            #[derive(Debug, Default, PartialEq, Clone, Copy)]
            pub struct _Hazzer([u8; 1]);
            impl _Hazzer {
                /// New hazzer with all fields set to off
                #[inline]
                pub const fn _new() -> Self {
                    Self([0; 1])
                }
                /// Query presence of `attribute`
                #[inline]
                pub const fn r#attribute(&self) -> bool {
                    (self.0[0] & 1) != 0
                }
                /// Set presence of `attribute`
                #[inline]
                pub const fn set_attribute(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem |= 1;
                    self
                }
                /// Clear presence of `attribute`
                #[inline]
                pub const fn clear_attribute(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem &= !1;
                    self
                }
                /// Builder method that sets the presence of `attribute`. Useful for initializing the Hazzer.
                #[inline]
                pub const fn init_attribute(mut self) -> Self {
                    self.set_attribute();
                    self
                }
            }
        }
        /// The path of a file without links and dots, as a stream.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct ResolvePath {
            pub r#path: ::alloc::vec::Vec<u8>,
        }
        impl ResolvePath {}
        impl ::micropb::MessageDecode for ResolvePath {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#path;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for ResolvePath {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.ResolvePath.path) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#path;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        /// Whether two files hold the same bytes.
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Compare {
            pub r#one: ::alloc::vec::Vec<u8>,
            pub r#other: ::alloc::vec::Vec<u8>,
        }
        impl Compare {}
        impl ::micropb::MessageDecode for Compare {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#one;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#other;
                            {
                                decoder
                                    .decode_bytes(mut_ref, ::micropb::Presence::Implicit)?;
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Compare {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Compare.one) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result:: < usize, & 'static str >
                    ::Err("(.blockyard.appliance.Compare.other) unbounded string or bytes"),
                    | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#one;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(10u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#other;
                    if !val_ref.is_empty() {
                        encoder.encode_varint32(18u32)?;
                        encoder.encode_bytes(val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#one;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#other;
                    if !val_ref.is_empty() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                size
            }
        }
        #[derive(Debug, Default, PartialEq, Clone)]
        pub struct Request {
            /// comes back
            pub r#number: u32,
            pub r#operation: ::core::option::Option<Request_::Operation>,
        }
        impl Request {}
        impl ::micropb::MessageDecode for Request {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#number;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Mount(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Mount(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        3u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Unmount(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Unmount(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        4u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Walk(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Walk(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        5u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Usage(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Usage(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        6u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Read(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Read(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        7u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Store(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Store(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        8u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Fetch(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Fetch(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        9u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::TarIn(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::TarIn(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        10u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::TarOut(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::TarOut(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        11u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Remove(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Remove(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        12u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::MakeDirectory(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::MakeDirectory(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        13u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Rename(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Rename(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        14u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Link(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Link(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        15u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::ChangeMode(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::ChangeMode(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        16u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::ChangeOwner(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::ChangeOwner(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        17u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Sync(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Sync(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        30u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::CopyFiles(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::CopyFiles(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        31u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Fill(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Fill(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        32u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::CopyBlocks(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::CopyBlocks(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        33u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Execute(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Execute(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        34u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Touch(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Touch(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        35u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::ReadPartitions(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::ReadPartitions(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        39u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Interrupt(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Interrupt(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        20u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::InstallTools(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::InstallTools(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        21u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::RunTool(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::RunTool(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        22u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::ListVolumes(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::ListVolumes(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        23u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Trim(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Trim(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        60u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Discard(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Discard(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        41u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Inspect(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Inspect(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        70u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::MakeNode(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::MakeNode(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        71u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::ReadAttributes(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::ReadAttributes(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        72u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::SetAttribute(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::SetAttribute(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        73u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::ResolvePath(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::ResolvePath(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        74u32 => {
                            let mut_ref = loop {
                                if let ::core::option::Option::Some(variant) = &mut self
                                    .r#operation
                                {
                                    if let Request_::Operation::Compare(variant) = &mut *variant {
                                        break &mut *variant;
                                    }
                                }
                                self.r#operation = ::core::option::Option::Some(
                                    Request_::Operation::Compare(
                                        ::core::default::Default::default(),
                                    ),
                                );
                            };
                            decoder.decode_submessage_delimited(mut_ref)?;
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Request {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match 'oneof: {
                    let mut max_size = 0;
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Mount as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Unmount as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Walk as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Usage as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Read as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Store as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Fetch as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< TarIn as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< TarOut as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Remove as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< MakeDirectory as ::micropb::MessageEncode
                        > ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)),
                        | size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Rename as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Link as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< ChangeMode as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 1usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< ChangeOwner as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Sync as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< CopyFiles as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Fill as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< CopyBlocks as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Execute as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Touch as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< ReadPartitions as
                        ::micropb::MessageEncode > ::MAX_SIZE, | size |
                        ::micropb::size::sizeof_len_record(size)), | size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Interrupt as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< InstallTools as ::micropb::MessageEncode
                        > ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)),
                        | size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< RunTool as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< ListVolumes as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Trim as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Discard as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Inspect as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< MakeNode as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< ReadAttributes as
                        ::micropb::MessageEncode > ::MAX_SIZE, | size |
                        ::micropb::size::sizeof_len_record(size)), | size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< SetAttribute as ::micropb::MessageEncode
                        > ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)),
                        | size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< ResolvePath as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    match ::micropb::const_map!(
                        ::micropb::const_map!(< Compare as ::micropb::MessageEncode >
                        ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                        size | size + 2usize
                    ) {
                        ::core::result::Result::Ok(size) => {
                            if size > max_size {
                                max_size = size;
                            }
                        }
                        ::core::result::Result::Err(err) => {
                            break 'oneof (::core::result::Result::<usize, _>::Err(err));
                        }
                    }
                    ::core::result::Result::Ok(max_size)
                } {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#number;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                if let Some(oneof) = &self.r#operation {
                    match &*oneof {
                        Request_::Operation::Mount(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(18u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Unmount(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(26u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Walk(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(34u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Usage(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(42u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Read(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(50u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Store(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(58u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Fetch(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(66u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::TarIn(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(74u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::TarOut(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(82u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Remove(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(90u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::MakeDirectory(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(98u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Rename(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(106u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Link(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(114u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::ChangeMode(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(122u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::ChangeOwner(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(130u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Sync(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(138u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::CopyFiles(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(242u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Fill(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(250u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::CopyBlocks(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(258u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Execute(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(266u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Touch(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(274u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::ReadPartitions(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(282u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Interrupt(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(314u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::InstallTools(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(162u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::RunTool(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(170u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::ListVolumes(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(178u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Trim(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(186u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Discard(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(482u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Inspect(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(330u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::MakeNode(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(562u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::ReadAttributes(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(570u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::SetAttribute(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(578u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::ResolvePath(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(586u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                        Request_::Operation::Compare(val_ref) => {
                            let val_ref = &*val_ref;
                            encoder.encode_varint32(594u32)?;
                            val_ref.encode_len_delimited(encoder)?;
                        }
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#number;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                if let Some(oneof) = &self.r#operation {
                    match &*oneof {
                        Request_::Operation::Mount(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Unmount(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Walk(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Usage(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Read(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Store(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Fetch(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::TarIn(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::TarOut(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Remove(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::MakeDirectory(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Rename(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Link(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::ChangeMode(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 1usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::ChangeOwner(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Sync(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::CopyFiles(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Fill(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::CopyBlocks(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Execute(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Touch(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::ReadPartitions(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Interrupt(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::InstallTools(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::RunTool(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::ListVolumes(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Trim(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Discard(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Inspect(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::MakeNode(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::ReadAttributes(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::SetAttribute(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::ResolvePath(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                        Request_::Operation::Compare(val_ref) => {
                            let val_ref = &*val_ref;
                            size
                                += 2usize
                                    + ::micropb::size::sizeof_len_record(
                                        val_ref.compute_size(),
                                    );
                        }
                    }
                }
                size
            }
        }
        /// Inner types for `Request`
        pub mod Request_ {
            #[derive(Debug, PartialEq, Clone)]
            pub enum Operation {
                Mount(super::Mount),
                Unmount(super::Unmount),
                Walk(super::Walk),
                Usage(super::Usage),
                Read(super::Read),
                Store(super::Store),
                Fetch(super::Fetch),
                TarIn(super::TarIn),
                TarOut(super::TarOut),
                Remove(super::Remove),
                MakeDirectory(super::MakeDirectory),
                Rename(super::Rename),
                Link(super::Link),
                ChangeMode(super::ChangeMode),
                ChangeOwner(super::ChangeOwner),
                Sync(super::Sync),
                CopyFiles(super::CopyFiles),
                Fill(super::Fill),
                CopyBlocks(super::CopyBlocks),
                Execute(super::Execute),
                Touch(super::Touch),
                ReadPartitions(super::ReadPartitions),
                Interrupt(super::Interrupt),
                InstallTools(super::InstallTools),
                RunTool(super::RunTool),
                ListVolumes(super::ListVolumes),
                Trim(super::Trim),
                Discard(super::Discard),
                Inspect(super::Inspect),
                MakeNode(super::MakeNode),
                ReadAttributes(super::ReadAttributes),
                SetAttribute(super::SetAttribute),
                ResolvePath(super::ResolvePath),
                Compare(super::Compare),
            }
        }
        /// How a request ended.
        #[derive(Debug, Default, Clone)]
        pub struct Response {
            pub r#number: u32,
            /// the first few; none: all went well
            pub r#failures: ::alloc::vec::Vec<Failure>,
            /// how many there were
            pub r#failed: u64,
            /// by Mount
            pub r#mounted: ::alloc::vec::Vec<MountPoint>,
            /// that a stream had, or that were copied
            pub r#bytes: u64,
            /// of RunTool
            ///
            /// *Note:* The presence of this field is tracked separately in the `_has` field. It's recommended to access this field via the accessor rather than directly.
            pub r#program: ProgramEnd,
            /// by Trim
            pub r#trimmed: ::alloc::vec::Vec<Trimmed>,
            /// by Mount: what could not be mounted; by TarOut: what was left out
            pub r#notes: ::alloc::vec::Vec<::alloc::string::String>,
            /// by Mount: some volumes have to be opened, or put together, before they have files
            pub r#closed: bool,
            /// by Mount and Inspect: what the kernel asked for and nobody has sent
            pub r#modules: ::alloc::vec::Vec<::alloc::string::String>,
            /// by Compare
            pub r#same: bool,
            /// Tracks presence of optional and message fields
            pub _has: Response_::_Hazzer,
        }
        impl ::core::cmp::PartialEq for Response {
            fn eq(&self, other: &Self) -> bool {
                let mut ret = true;
                ret &= (self.r#number == other.r#number);
                ret &= (self.r#failures == other.r#failures);
                ret &= (self.r#failed == other.r#failed);
                ret &= (self.r#mounted == other.r#mounted);
                ret &= (self.r#bytes == other.r#bytes);
                ret &= (self.r#program() == other.r#program());
                ret &= (self.r#trimmed == other.r#trimmed);
                ret &= (self.r#notes == other.r#notes);
                ret &= (self.r#closed == other.r#closed);
                ret &= (self.r#modules == other.r#modules);
                ret &= (self.r#same == other.r#same);
                ret
            }
        }
        impl Response {
            /// Return a reference to `program` as an `Option`
            #[inline]
            pub fn r#program(&self) -> ::core::option::Option<&ProgramEnd> {
                self._has.r#program().then_some(&self.r#program)
            }
        }
        impl ::micropb::MessageDecode for Response {
            fn decode<IMPL_MICROPB_READ: ::micropb::PbRead>(
                &mut self,
                decoder: &mut ::micropb::PbDecoder<IMPL_MICROPB_READ>,
                len: usize,
            ) -> Result<(), ::micropb::DecodeError<IMPL_MICROPB_READ::Error>> {
                use ::micropb::{PbBytes, PbString, PbVec, PbMap, FieldDecode};
                let before = decoder.bytes_read();
                while decoder.bytes_read() - before < len {
                    let tag = decoder.decode_tag()?;
                    match tag.field_num() {
                        0 => return Err(::micropb::DecodeError::ZeroField),
                        1u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#number;
                            {
                                let val = decoder.decode_varint32()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        2u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: Failure = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#failures.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        3u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#failed;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        4u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: MountPoint = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#mounted.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        5u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#bytes;
                            {
                                let val = decoder.decode_varint64()?;
                                let val_ref = &val;
                                if *val_ref != 0 {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        20u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#program;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            self._has.set_program();
                        }
                        21u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: Trimmed = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder.decode_submessage_delimited(mut_ref)?;
                            };
                            if let (Err(_), false) = (
                                self.r#trimmed.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        40u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::string::String = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#notes.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        41u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#closed;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        43u32 => {
                            if tag.wire_type() != 2u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut val: ::alloc::string::String = ::core::default::Default::default();
                            let mut_ref = &mut val;
                            {
                                decoder
                                    .decode_string(mut_ref, ::micropb::Presence::Explicit)?;
                            };
                            if let (Err(_), false) = (
                                self.r#modules.pb_push(val),
                                decoder.ignore_repeated_cap_err,
                            ) {
                                return Err(::micropb::DecodeError::Capacity);
                            }
                        }
                        70u32 => {
                            if tag.wire_type() != 0u8 {
                                return Err(::micropb::DecodeError::WrongWireType);
                            }
                            let mut_ref = &mut self.r#same;
                            {
                                let val = decoder.decode_bool()?;
                                let val_ref = &val;
                                if *val_ref {
                                    *mut_ref = val as _;
                                }
                            };
                        }
                        _ => {
                            decoder.skip_wire_value(tag.wire_type())?;
                        }
                    }
                }
                Ok(())
            }
        }
        impl ::micropb::MessageEncode for Response {
            const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(5usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Response.failures) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Response.mounted) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(10usize), | size | size + 1usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::micropb::const_map!(< ProgramEnd as ::micropb::MessageEncode >
                    ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), |
                    size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Response.trimmed) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Response.notes) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::core::result::Result::<
                    usize,
                    &'static str,
                >::Err("(.blockyard.appliance.Response.modules) unbounded vec") {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                match ::micropb::const_map!(
                    ::core::result::Result::Ok(1usize), | size | size + 2usize
                ) {
                    ::core::result::Result::Ok(size) => {
                        max_size += size;
                    }
                    ::core::result::Result::Err(err) => {
                        break 'msg (::core::result::Result::<usize, _>::Err(err));
                    }
                }
                ::core::result::Result::Ok(max_size)
            };
            fn encode<IMPL_MICROPB_WRITE: ::micropb::PbWrite>(
                &self,
                encoder: &mut ::micropb::PbEncoder<IMPL_MICROPB_WRITE>,
            ) -> Result<(), IMPL_MICROPB_WRITE::Error> {
                use ::micropb::{PbMap, FieldEncode};
                {
                    let val_ref = &self.r#number;
                    if *val_ref != 0 {
                        encoder.encode_varint32(8u32)?;
                        encoder.encode_varint32(*val_ref as _)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#failures.iter().enumerate() {
                        encoder.encode_varint32(18u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#failed;
                    if *val_ref != 0 {
                        encoder.encode_varint32(24u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#mounted.iter().enumerate() {
                        encoder.encode_varint32(34u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    let val_ref = &self.r#bytes;
                    if *val_ref != 0 {
                        encoder.encode_varint32(40u32)?;
                        encoder.encode_varint64(*val_ref as _)?;
                    }
                }
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#program() {
                        encoder.encode_varint32(162u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#trimmed.iter().enumerate() {
                        encoder.encode_varint32(170u32)?;
                        val_ref.encode_len_delimited(encoder)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#notes.iter().enumerate() {
                        encoder.encode_varint32(322u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#closed;
                    if *val_ref {
                        encoder.encode_varint32(328u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                {
                    for (i, val_ref) in self.r#modules.iter().enumerate() {
                        encoder.encode_varint32(346u32)?;
                        encoder.encode_string(val_ref)?;
                    }
                }
                {
                    let val_ref = &self.r#same;
                    if *val_ref {
                        encoder.encode_varint32(560u32)?;
                        encoder.encode_bool(*val_ref)?;
                    }
                }
                Ok(())
            }
            fn compute_size(&self) -> usize {
                use ::micropb::{PbMap, FieldEncode};
                let mut size = 0;
                {
                    let val_ref = &self.r#number;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                    }
                }
                {
                    for (i, val_ref) in self.r#failures.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#failed;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    for (i, val_ref) in self.r#mounted.iter().enumerate() {
                        size
                            += 1usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    let val_ref = &self.r#bytes;
                    if *val_ref != 0 {
                        size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                    }
                }
                {
                    if let ::core::option::Option::Some(val_ref) = self.r#program() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    for (i, val_ref) in self.r#trimmed.iter().enumerate() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(
                                    val_ref.compute_size(),
                                );
                    }
                }
                {
                    for (i, val_ref) in self.r#notes.iter().enumerate() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#closed;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                {
                    for (i, val_ref) in self.r#modules.iter().enumerate() {
                        size
                            += 2usize
                                + ::micropb::size::sizeof_len_record(val_ref.len());
                    }
                }
                {
                    let val_ref = &self.r#same;
                    if *val_ref {
                        size += 2usize + 1;
                    }
                }
                size
            }
        }
        /// Inner types for `Response`
        pub mod Response_ {
            /// Compact bitfield for tracking presence of optional and message fields
            #[derive(Debug, Default, PartialEq, Clone, Copy)]
            pub struct _Hazzer([u8; 1]);
            impl _Hazzer {
                /// New hazzer with all fields set to off
                #[inline]
                pub const fn _new() -> Self {
                    Self([0; 1])
                }
                /// Query presence of `program`
                #[inline]
                pub const fn r#program(&self) -> bool {
                    (self.0[0] & 1) != 0
                }
                /// Set presence of `program`
                #[inline]
                pub const fn set_program(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem |= 1;
                    self
                }
                /// Clear presence of `program`
                #[inline]
                pub const fn clear_program(&mut self) -> &mut Self {
                    let elem = &mut self.0[0];
                    *elem &= !1;
                    self
                }
                /// Builder method that sets the presence of `program`. Useful for initializing the Hazzer.
                #[inline]
                pub const fn init_program(mut self) -> Self {
                    self.set_program();
                    self
                }
            }
        }
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub struct Compression(pub i32);
        impl Compression {
            /// Maximum encoded size of the enum
            pub const _MAX_SIZE: usize = 10usize;
            pub const None: Self = Self(0);
            pub const Gzip: Self = Self(1);
            pub const Zstd: Self = Self(2);
        }
        impl core::default::Default for Compression {
            fn default() -> Self {
                Self(0)
            }
        }
        impl core::convert::From<i32> for Compression {
            fn from(val: i32) -> Self {
                Self(val)
            }
        }
        impl core::fmt::Debug for Compression {
            fn fmt(
                &self,
                formatter: &mut core::fmt::Formatter<'_>,
            ) -> core::fmt::Result {
                match *self {
                    Compression::None => formatter.write_str("None"),
                    Compression::Gzip => formatter.write_str("Gzip"),
                    Compression::Zstd => formatter.write_str("Zstd"),
                    Self(n) => formatter.debug_tuple("_Unknown").field(&n).finish(),
                }
            }
        }
    }
}
