// Generated from messages.proto by `cargo xtask generate`: change that file, not this one. eb49a7fa23f17685

pub mod r#blockyard {
    /// One disk that the guest shall drive.
    #[derive(Debug, Default, PartialEq, Clone)]
    pub struct DeviceConfig {
        /// "input" or "output"
        pub r#name: ::heapless::String<32>,
        /// bytes: the unit in which the guest addresses the device
        pub r#sector_size: u32,
        /// guest-physical address of its virtio-mmio registers
        pub r#address: u64,
        /// virtqueues to use, the same for both devices
        pub r#queues: u32,
        /// it reads as zeros wherever the guest has not written
        pub r#zeroed: bool,
    }
    impl DeviceConfig {}
    impl ::micropb::MessageDecode for DeviceConfig {
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
                                .decode_string(mut_ref, ::micropb::Presence::Implicit)?;
                        };
                    }
                    2u32 => {
                        if tag.wire_type() != 0u8 {
                            return Err(::micropb::DecodeError::WrongWireType);
                        }
                        let mut_ref = &mut self.r#sector_size;
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
                        let mut_ref = &mut self.r#address;
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
                        let mut_ref = &mut self.r#queues;
                        {
                            let val = decoder.decode_varint32()?;
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
                        let mut_ref = &mut self.r#zeroed;
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
    impl ::micropb::MessageEncode for DeviceConfig {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match ::micropb::const_map!(
                ::core::result::Result::Ok(33usize), | size | size + 1usize
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
                let val_ref = &self.r#name;
                if !val_ref.is_empty() {
                    encoder.encode_varint32(10u32)?;
                    encoder.encode_string(val_ref)?;
                }
            }
            {
                let val_ref = &self.r#sector_size;
                if *val_ref != 0 {
                    encoder.encode_varint32(16u32)?;
                    encoder.encode_varint32(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#address;
                if *val_ref != 0 {
                    encoder.encode_varint32(24u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#queues;
                if *val_ref != 0 {
                    encoder.encode_varint32(32u32)?;
                    encoder.encode_varint32(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#zeroed;
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
                let val_ref = &self.r#name;
                if !val_ref.is_empty() {
                    size += 1usize + ::micropb::size::sizeof_len_record(val_ref.len());
                }
            }
            {
                let val_ref = &self.r#sector_size;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#address;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#queues;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#zeroed;
                if *val_ref {
                    size += 1usize + 1;
                }
            }
            size
        }
    }
    /// What the guest shall do: the first frame.
    #[derive(Debug, Default, PartialEq, Clone)]
    pub struct VmmConfig {
        /// the input and the output
        pub r#devices: ::heapless::Vec<DeviceConfig, 8>,
        /// 0: every 10 sectors; 1-99: at each such part; 100: only Complete
        pub r#progress_percent: u32,
        /// bytes to copy: neither device's capacity counts, both are rounded up
        pub r#length: u64,
        /// bytes in the largest request: no less than the larger sector
        pub r#request_size: u32,
        /// requests in flight, all queues of both devices together
        pub r#queue_depth: u32,
        /// bytes of guest memory from address 0
        pub r#memory_size: u64,
        /// flush the output before Complete
        pub r#flush: bool,
        /// look for zeros in what was read, and write-zeroes them
        pub r#detect_zeroes: bool,
    }
    impl VmmConfig {}
    impl ::micropb::MessageDecode for VmmConfig {
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
                        let mut val: DeviceConfig = ::core::default::Default::default();
                        let mut_ref = &mut val;
                        {
                            decoder.decode_submessage_delimited(mut_ref)?;
                        };
                        if let (Err(_), false) = (
                            self.r#devices.pb_push(val),
                            decoder.ignore_repeated_cap_err,
                        ) {
                            return Err(::micropb::DecodeError::Capacity);
                        }
                    }
                    2u32 => {
                        if tag.wire_type() != 0u8 {
                            return Err(::micropb::DecodeError::WrongWireType);
                        }
                        let mut_ref = &mut self.r#progress_percent;
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
                        let mut_ref = &mut self.r#length;
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
                        let mut_ref = &mut self.r#request_size;
                        {
                            let val = decoder.decode_varint32()?;
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
                        let mut_ref = &mut self.r#queue_depth;
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
                        let mut_ref = &mut self.r#memory_size;
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
                        let mut_ref = &mut self.r#flush;
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
                        let mut_ref = &mut self.r#detect_zeroes;
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
    impl ::micropb::MessageEncode for VmmConfig {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match ::micropb::const_map!(
                ::micropb::const_map!(< DeviceConfig as ::micropb::MessageEncode >
                ::MAX_SIZE, | size | ::micropb::size::sizeof_len_record(size)), | size |
                (size + 1usize) * 8usize
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
                for (i, val_ref) in self.r#devices.iter().enumerate() {
                    encoder.encode_varint32(10u32)?;
                    val_ref.encode_len_delimited(encoder)?;
                }
            }
            {
                let val_ref = &self.r#progress_percent;
                if *val_ref != 0 {
                    encoder.encode_varint32(16u32)?;
                    encoder.encode_varint32(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#length;
                if *val_ref != 0 {
                    encoder.encode_varint32(24u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#request_size;
                if *val_ref != 0 {
                    encoder.encode_varint32(32u32)?;
                    encoder.encode_varint32(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#queue_depth;
                if *val_ref != 0 {
                    encoder.encode_varint32(40u32)?;
                    encoder.encode_varint32(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#memory_size;
                if *val_ref != 0 {
                    encoder.encode_varint32(48u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#flush;
                if *val_ref {
                    encoder.encode_varint32(56u32)?;
                    encoder.encode_bool(*val_ref)?;
                }
            }
            {
                let val_ref = &self.r#detect_zeroes;
                if *val_ref {
                    encoder.encode_varint32(64u32)?;
                    encoder.encode_bool(*val_ref)?;
                }
            }
            Ok(())
        }
        fn compute_size(&self) -> usize {
            use ::micropb::{PbMap, FieldEncode};
            let mut size = 0;
            {
                for (i, val_ref) in self.r#devices.iter().enumerate() {
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
            }
            {
                let val_ref = &self.r#progress_percent;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#length;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#request_size;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#queue_depth;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#memory_size;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#flush;
                if *val_ref {
                    size += 1usize + 1;
                }
            }
            {
                let val_ref = &self.r#detect_zeroes;
                if *val_ref {
                    size += 1usize + 1;
                }
            }
            size
        }
    }
    /// A part of the input.
    #[derive(Debug, Default, PartialEq, Clone, Copy)]
    pub struct Extent {
        /// bytes, at least one; it starts where the one before it ends
        pub r#length: u64,
        /// what lies in it
        pub r#kind: ExtentKind,
    }
    impl Extent {}
    impl ::micropb::MessageDecode for Extent {
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
                        let mut_ref = &mut self.r#length;
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
                        let mut_ref = &mut self.r#kind;
                        {
                            let val = decoder
                                .decode_int32()
                                .map(|n| ExtentKind(n as _))?;
                            let val_ref = &val;
                            if val_ref.0 != 0 {
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
    impl ::micropb::MessageEncode for Extent {
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
                ::core::result::Result::Ok(ExtentKind::_MAX_SIZE), | size | size + 1usize
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
                let val_ref = &self.r#length;
                if *val_ref != 0 {
                    encoder.encode_varint32(8u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#kind;
                if val_ref.0 != 0 {
                    encoder.encode_varint32(16u32)?;
                    encoder.encode_int32(val_ref.0 as _)?;
                }
            }
            Ok(())
        }
        fn compute_size(&self) -> usize {
            use ::micropb::{PbMap, FieldEncode};
            let mut size = 0;
            {
                let val_ref = &self.r#length;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#kind;
                if val_ref.0 != 0 {
                    size += 1usize + ::micropb::size::sizeof_int32(val_ref.0 as _);
                }
            }
            size
        }
    }
    /// The input's extents in order from offset 0: one frame at least, unless there is nothing to copy. The guest reads
    /// the next frame when it has used up this one.
    #[derive(Debug, Default, PartialEq, Clone)]
    pub struct Extents {
        /// one at least
        pub r#extents: ::heapless::Vec<Extent, 256>,
        /// they reach the end of the input: no frame follows
        pub r#last: bool,
    }
    impl Extents {}
    impl ::micropb::MessageDecode for Extents {
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
                        let mut val: Extent = ::core::default::Default::default();
                        let mut_ref = &mut val;
                        {
                            decoder.decode_submessage_delimited(mut_ref)?;
                        };
                        if let (Err(_), false) = (
                            self.r#extents.pb_push(val),
                            decoder.ignore_repeated_cap_err,
                        ) {
                            return Err(::micropb::DecodeError::Capacity);
                        }
                    }
                    2u32 => {
                        if tag.wire_type() != 0u8 {
                            return Err(::micropb::DecodeError::WrongWireType);
                        }
                        let mut_ref = &mut self.r#last;
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
    impl ::micropb::MessageEncode for Extents {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match ::micropb::const_map!(
                ::micropb::const_map!(< Extent as ::micropb::MessageEncode > ::MAX_SIZE,
                | size | ::micropb::size::sizeof_len_record(size)), | size | (size +
                1usize) * 256usize
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
                for (i, val_ref) in self.r#extents.iter().enumerate() {
                    encoder.encode_varint32(10u32)?;
                    val_ref.encode_len_delimited(encoder)?;
                }
            }
            {
                let val_ref = &self.r#last;
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
                for (i, val_ref) in self.r#extents.iter().enumerate() {
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
            }
            {
                let val_ref = &self.r#last;
                if *val_ref {
                    size += 1usize + 1;
                }
            }
            size
        }
    }
    /// The guest has reached a stage.
    #[derive(Debug, Default, PartialEq, Clone, Copy)]
    pub struct Init {
        /// which
        pub r#stage: Stage,
    }
    impl Init {}
    impl ::micropb::MessageDecode for Init {
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
                        let mut_ref = &mut self.r#stage;
                        {
                            let val = decoder.decode_int32().map(|n| Stage(n as _))?;
                            let val_ref = &val;
                            if val_ref.0 != 0 {
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
    impl ::micropb::MessageEncode for Init {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match ::micropb::const_map!(
                ::core::result::Result::Ok(Stage::_MAX_SIZE), | size | size + 1usize
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
                let val_ref = &self.r#stage;
                if val_ref.0 != 0 {
                    encoder.encode_varint32(8u32)?;
                    encoder.encode_int32(val_ref.0 as _)?;
                }
            }
            Ok(())
        }
        fn compute_size(&self) -> usize {
            use ::micropb::{PbMap, FieldEncode};
            let mut size = 0;
            {
                let val_ref = &self.r#stage;
                if val_ref.0 != 0 {
                    size += 1usize + ::micropb::size::sizeof_int32(val_ref.0 as _);
                }
            }
            size
        }
    }
    /// What a device says of itself.
    #[derive(Debug, Default, PartialEq, Clone)]
    pub struct Capacity {
        /// its name
        pub r#device: ::heapless::String<32>,
        /// its capacity
        pub r#bytes: u64,
        /// bytes in its logical block
        pub r#sector_size: u32,
    }
    impl Capacity {}
    impl ::micropb::MessageDecode for Capacity {
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
                    3u32 => {
                        if tag.wire_type() != 0u8 {
                            return Err(::micropb::DecodeError::WrongWireType);
                        }
                        let mut_ref = &mut self.r#sector_size;
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
    impl ::micropb::MessageEncode for Capacity {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match ::micropb::const_map!(
                ::core::result::Result::Ok(33usize), | size | size + 1usize
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
            {
                let val_ref = &self.r#sector_size;
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
                let val_ref = &self.r#device;
                if !val_ref.is_empty() {
                    size += 1usize + ::micropb::size::sizeof_len_record(val_ref.len());
                }
            }
            {
                let val_ref = &self.r#bytes;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#sector_size;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            size
        }
    }
    /// How much has been copied.
    #[derive(Debug, Default, PartialEq, Clone, Copy)]
    pub struct Progress {
        /// so far, holes included
        pub r#bytes: u64,
        /// of how many
        pub r#total: u64,
    }
    impl Progress {}
    impl ::micropb::MessageDecode for Progress {
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
                        let mut_ref = &mut self.r#bytes;
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
                        let mut_ref = &mut self.r#total;
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
    impl ::micropb::MessageEncode for Progress {
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
                let val_ref = &self.r#bytes;
                if *val_ref != 0 {
                    encoder.encode_varint32(8u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#total;
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
                let val_ref = &self.r#bytes;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#total;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            size
        }
    }
    /// The guest gives up.
    #[derive(Debug, Default, PartialEq, Clone)]
    pub struct Error {
        /// what it was doing
        pub r#operation: GuestOperation,
        /// with which device, if with one
        pub r#device: ::heapless::String<32>,
        /// where, in the device's sectors
        pub r#sector: u64,
        /// the virtio-blk status byte, where there is one
        pub r#status: u32,
        /// a sentence
        pub r#detail: ::heapless::String<200>,
    }
    impl Error {}
    impl ::micropb::MessageDecode for Error {
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
                        let mut_ref = &mut self.r#operation;
                        {
                            let val = decoder
                                .decode_int32()
                                .map(|n| GuestOperation(n as _))?;
                            let val_ref = &val;
                            if val_ref.0 != 0 {
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
                    3u32 => {
                        if tag.wire_type() != 0u8 {
                            return Err(::micropb::DecodeError::WrongWireType);
                        }
                        let mut_ref = &mut self.r#sector;
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
                        let mut_ref = &mut self.r#status;
                        {
                            let val = decoder.decode_varint32()?;
                            let val_ref = &val;
                            if *val_ref != 0 {
                                *mut_ref = val as _;
                            }
                        };
                    }
                    5u32 => {
                        if tag.wire_type() != 2u8 {
                            return Err(::micropb::DecodeError::WrongWireType);
                        }
                        let mut_ref = &mut self.r#detail;
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
    impl ::micropb::MessageEncode for Error {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match ::micropb::const_map!(
                ::core::result::Result::Ok(GuestOperation::_MAX_SIZE), | size | size +
                1usize
            ) {
                ::core::result::Result::Ok(size) => {
                    max_size += size;
                }
                ::core::result::Result::Err(err) => {
                    break 'msg (::core::result::Result::<usize, _>::Err(err));
                }
            }
            match ::micropb::const_map!(
                ::core::result::Result::Ok(33usize), | size | size + 1usize
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
                ::core::result::Result::Ok(202usize), | size | size + 1usize
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
                let val_ref = &self.r#operation;
                if val_ref.0 != 0 {
                    encoder.encode_varint32(8u32)?;
                    encoder.encode_int32(val_ref.0 as _)?;
                }
            }
            {
                let val_ref = &self.r#device;
                if !val_ref.is_empty() {
                    encoder.encode_varint32(18u32)?;
                    encoder.encode_string(val_ref)?;
                }
            }
            {
                let val_ref = &self.r#sector;
                if *val_ref != 0 {
                    encoder.encode_varint32(24u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#status;
                if *val_ref != 0 {
                    encoder.encode_varint32(32u32)?;
                    encoder.encode_varint32(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#detail;
                if !val_ref.is_empty() {
                    encoder.encode_varint32(42u32)?;
                    encoder.encode_string(val_ref)?;
                }
            }
            Ok(())
        }
        fn compute_size(&self) -> usize {
            use ::micropb::{PbMap, FieldEncode};
            let mut size = 0;
            {
                let val_ref = &self.r#operation;
                if val_ref.0 != 0 {
                    size += 1usize + ::micropb::size::sizeof_int32(val_ref.0 as _);
                }
            }
            {
                let val_ref = &self.r#device;
                if !val_ref.is_empty() {
                    size += 1usize + ::micropb::size::sizeof_len_record(val_ref.len());
                }
            }
            {
                let val_ref = &self.r#sector;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#status;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint32(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#detail;
                if !val_ref.is_empty() {
                    size += 1usize + ::micropb::size::sizeof_len_record(val_ref.len());
                }
            }
            size
        }
    }
    /// Everything is copied, and flushed if that was wanted.
    #[derive(Debug, Default, PartialEq, Clone, Copy)]
    pub struct Complete {
        /// copied, holes included
        pub r#bytes: u64,
        /// virtio-blk requests made
        pub r#requests: u64,
    }
    impl Complete {}
    impl ::micropb::MessageDecode for Complete {
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
                        let mut_ref = &mut self.r#bytes;
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
                        let mut_ref = &mut self.r#requests;
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
    impl ::micropb::MessageEncode for Complete {
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
                let val_ref = &self.r#bytes;
                if *val_ref != 0 {
                    encoder.encode_varint32(8u32)?;
                    encoder.encode_varint64(*val_ref as _)?;
                }
            }
            {
                let val_ref = &self.r#requests;
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
                let val_ref = &self.r#bytes;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            {
                let val_ref = &self.r#requests;
                if *val_ref != 0 {
                    size += 1usize + ::micropb::size::sizeof_varint64(*val_ref as _);
                }
            }
            size
        }
    }
    /// A frame from the guest.
    #[derive(Debug, Default, PartialEq, Clone)]
    pub enum GuestMessage {
        /// it has reached a stage
        Init(Init),
        /// what it found a device to be
        Capacity(Capacity),
        /// how much it has copied
        Progress(Progress),
        /// it has failed
        Error(Error),
        /// it is done
        Complete(Complete),
        #[default]
        None,
    }
    impl ::micropb::MessageDecode for GuestMessage {
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
                            if let Self::Init(variant) = self {
                                break &mut *variant;
                            }
                            *self = Self::Init(::core::default::Default::default());
                        };
                        decoder.decode_submessage_delimited(mut_ref)?;
                    }
                    2u32 => {
                        let mut_ref = loop {
                            if let Self::Capacity(variant) = self {
                                break &mut *variant;
                            }
                            *self = Self::Capacity(::core::default::Default::default());
                        };
                        decoder.decode_submessage_delimited(mut_ref)?;
                    }
                    3u32 => {
                        let mut_ref = loop {
                            if let Self::Progress(variant) = self {
                                break &mut *variant;
                            }
                            *self = Self::Progress(::core::default::Default::default());
                        };
                        decoder.decode_submessage_delimited(mut_ref)?;
                    }
                    4u32 => {
                        let mut_ref = loop {
                            if let Self::Error(variant) = self {
                                break &mut *variant;
                            }
                            *self = Self::Error(::core::default::Default::default());
                        };
                        decoder.decode_submessage_delimited(mut_ref)?;
                    }
                    5u32 => {
                        let mut_ref = loop {
                            if let Self::Complete(variant) = self {
                                break &mut *variant;
                            }
                            *self = Self::Complete(::core::default::Default::default());
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
    impl ::micropb::MessageEncode for GuestMessage {
        const MAX_SIZE: ::core::result::Result<usize, &'static str> = 'msg: {
            let mut max_size = 0;
            match 'oneof: {
                let mut max_size = 0;
                match ::micropb::const_map!(
                    ::micropb::const_map!(< Init as ::micropb::MessageEncode >
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
                    ::micropb::const_map!(< Capacity as ::micropb::MessageEncode >
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
                    ::micropb::const_map!(< Progress as ::micropb::MessageEncode >
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
                    ::micropb::const_map!(< Error as ::micropb::MessageEncode >
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
                    ::micropb::const_map!(< Complete as ::micropb::MessageEncode >
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
                Self::Init(val_ref) => {
                    let val_ref = &*val_ref;
                    encoder.encode_varint32(10u32)?;
                    val_ref.encode_len_delimited(encoder)?;
                }
                Self::Capacity(val_ref) => {
                    let val_ref = &*val_ref;
                    encoder.encode_varint32(18u32)?;
                    val_ref.encode_len_delimited(encoder)?;
                }
                Self::Progress(val_ref) => {
                    let val_ref = &*val_ref;
                    encoder.encode_varint32(26u32)?;
                    val_ref.encode_len_delimited(encoder)?;
                }
                Self::Error(val_ref) => {
                    let val_ref = &*val_ref;
                    encoder.encode_varint32(34u32)?;
                    val_ref.encode_len_delimited(encoder)?;
                }
                Self::Complete(val_ref) => {
                    let val_ref = &*val_ref;
                    encoder.encode_varint32(42u32)?;
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
                Self::Init(val_ref) => {
                    let val_ref = &*val_ref;
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
                Self::Capacity(val_ref) => {
                    let val_ref = &*val_ref;
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
                Self::Progress(val_ref) => {
                    let val_ref = &*val_ref;
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
                Self::Error(val_ref) => {
                    let val_ref = &*val_ref;
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
                Self::Complete(val_ref) => {
                    let val_ref = &*val_ref;
                    size
                        += 1usize
                            + ::micropb::size::sizeof_len_record(val_ref.compute_size());
                }
                Self::None => {}
            }
            size
        }
    }
    /// What lies in an extent.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct ExtentKind(pub i32);
    impl ExtentKind {
        /// Maximum encoded size of the enum
        pub const _MAX_SIZE: usize = 10usize;
        /// must be read
        pub const Data: Self = Self(0);
        /// reads as zeros, in storage or not
        pub const Zero: Self = Self(1);
    }
    impl core::default::Default for ExtentKind {
        fn default() -> Self {
            Self(0)
        }
    }
    impl core::convert::From<i32> for ExtentKind {
        fn from(val: i32) -> Self {
            Self(val)
        }
    }
    impl core::fmt::Debug for ExtentKind {
        fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            match *self {
                ExtentKind::Data => formatter.write_str("Data"),
                ExtentKind::Zero => formatter.write_str("Zero"),
                Self(n) => formatter.debug_tuple("_Unknown").field(&n).finish(),
            }
        }
    }
    /// How far the guest has come.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct Stage(pub i32);
    impl Stage {
        /// Maximum encoded size of the enum
        pub const _MAX_SIZE: usize = 10usize;
        /// the guest runs
        pub const Started: Self = Self(0);
        /// and has understood what to do
        pub const ConfigReceived: Self = Self(1);
        /// the input device has accepted its driver
        pub const InputReady: Self = Self(2);
        /// the output device too
        pub const OutputReady: Self = Self(3);
        /// the first requests follow
        pub const Copying: Self = Self(4);
        /// everything is written
        pub const Flushing: Self = Self(5);
    }
    impl core::default::Default for Stage {
        fn default() -> Self {
            Self(0)
        }
    }
    impl core::convert::From<i32> for Stage {
        fn from(val: i32) -> Self {
            Self(val)
        }
    }
    impl core::fmt::Debug for Stage {
        fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            match *self {
                Stage::Started => formatter.write_str("Started"),
                Stage::ConfigReceived => formatter.write_str("ConfigReceived"),
                Stage::InputReady => formatter.write_str("InputReady"),
                Stage::OutputReady => formatter.write_str("OutputReady"),
                Stage::Copying => formatter.write_str("Copying"),
                Stage::Flushing => formatter.write_str("Flushing"),
                Self(n) => formatter.debug_tuple("_Unknown").field(&n).finish(),
            }
        }
    }
    /// What the guest was doing when it failed.
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    #[repr(transparent)]
    pub struct GuestOperation(pub i32);
    impl GuestOperation {
        /// Maximum encoded size of the enum
        pub const _MAX_SIZE: usize = 10usize;
        /// understanding the VMM's frames
        pub const Config: Self = Self(0);
        /// bringing up a device
        pub const Probe: Self = Self(1);
        /// reading the input
        pub const Read: Self = Self(2);
        /// writing the output
        pub const Write: Self = Self(3);
        /// writing zeros to the output
        pub const WriteZeroes: Self = Self(4);
        /// flushing the output
        pub const Flush: Self = Self(5);
        /// the guest's own mistake
        pub const Panic: Self = Self(6);
    }
    impl core::default::Default for GuestOperation {
        fn default() -> Self {
            Self(0)
        }
    }
    impl core::convert::From<i32> for GuestOperation {
        fn from(val: i32) -> Self {
            Self(val)
        }
    }
    impl core::fmt::Debug for GuestOperation {
        fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
            match *self {
                GuestOperation::Config => formatter.write_str("Config"),
                GuestOperation::Probe => formatter.write_str("Probe"),
                GuestOperation::Read => formatter.write_str("Read"),
                GuestOperation::Write => formatter.write_str("Write"),
                GuestOperation::WriteZeroes => formatter.write_str("WriteZeroes"),
                GuestOperation::Flush => formatter.write_str("Flush"),
                GuestOperation::Panic => formatter.write_str("Panic"),
                Self(n) => formatter.debug_tuple("_Unknown").field(&n).finish(),
            }
        }
    }
}
