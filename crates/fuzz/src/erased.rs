//! A target whose type is forgotten. bolero's engine asks a target for its input in half a dozen ways and is compiled
//! with the target for each; of [`Erased`] it is compiled once for all of them, and a target for one way of asking.

use bolero::Test;
use bolero::bolero_engine::driver::object::DynDriver;
use bolero::bolero_engine::{Driver, Input, panic::PanicError};
use std::fmt::{self, Debug};
use std::ops::Bound;
use std::panic::RefUnwindSafe;

/// A test of which only this is known.
pub(super) trait Target {
    fn run(&mut self, input: &mut Given<'_>) -> Result<bool, PanicError>;
    fn value(&self, input: &mut Given<'_>) -> Shown;
}

impl<T: Test<Value: Debug>> Target for T {
    fn run(&mut self, input: &mut Given<'_>) -> Result<bool, PanicError> {
        Test::test(self, input)
    }

    fn value(&self, input: &mut Given<'_>) -> Shown {
        Shown(format!("{:#?}", self.generate_value(input)))
    }
}

/// A value as it is printed.
pub(super) struct Shown(String);

impl Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

pub(super) struct Erased<'t> {
    target: &'t mut dyn Target,
    /// Rather than values that are drawn.
    takes_bytes: bool,
}

impl<'t> Erased<'t> {
    /// `driver` draws a value to see what the target asks for.
    pub(super) fn new(target: &'t mut dyn Target, driver: &mut (impl Driver + RefUnwindSafe)) -> Self {
        let mut input = Given::Either { driver: Drawing(&mut Lent(driver)), took_bytes: false };
        target.value(&mut input);
        let takes_bytes = matches!(input, Given::Either { took_bytes: true, .. });
        Self { target, takes_bytes }
    }

    /// For one more run.
    pub(super) fn again(&mut self) -> Erased<'_> {
        Erased { target: self.target, takes_bytes: self.takes_bytes }
    }
}

impl Test for Erased<'_> {
    type Value = Shown;

    fn test<I: Input<Result<bool, PanicError>>>(&mut self, input: &mut I) -> Result<bool, PanicError> {
        if self.takes_bytes {
            input.with_slice(&mut |bytes| self.target.run(&mut Given::Bytes(bytes)))
        } else {
            input.with_driver(&mut |driver| self.target.run(&mut Given::Values(Drawing(&mut Lent(driver)))))
        }
    }

    fn generate_value<I: Input<Shown>>(&self, input: &mut I) -> Shown {
        if self.takes_bytes {
            input.with_slice(&mut |bytes| self.target.value(&mut Given::Bytes(bytes)))
        } else {
            input.with_driver(&mut |driver| self.target.value(&mut Given::Values(Drawing(&mut Lent(driver)))))
        }
    }
}

/// The one input that targets are compiled for.
pub(super) enum Given<'a> {
    Bytes(&'a [u8]),
    Values(Drawing<'a>),
    /// To somebody of whom it is not known what they take.
    Either {
        driver: Drawing<'a>,
        took_bytes: bool,
    },
}

impl<'a, Output> Input<Output> for Given<'a> {
    type Driver = Drawing<'a>;

    fn with_slice<F: FnMut(&[u8]) -> Output>(&mut self, f: &mut F) -> Output {
        match self {
            Self::Bytes(bytes) => f(bytes),
            Self::Values(_) => unreachable!("it takes what it took before"),
            Self::Either { took_bytes, .. } => {
                *took_bytes = true;
                f(&[])
            }
        }
    }

    fn with_driver<F: FnMut(&mut Self::Driver) -> Output>(&mut self, f: &mut F) -> Output {
        match self {
            Self::Values(driver) | Self::Either { driver, .. } => f(driver),
            Self::Bytes(_) => unreachable!("it takes what it took before"),
        }
    }
}

/// A driver whose type is forgotten.
pub(super) struct Drawing<'a>(&'a mut (dyn DynDriver + RefUnwindSafe + 'a));

/// A driver that is somebody else's.
struct Lent<'a, D>(&'a mut D);

/// The methods of [`DynDriver`] that field 0 has as they are.
macro_rules! field_0_draws {
    () => {
        fn depth(&self) -> usize {
            self.0.depth()
        }

        fn set_depth(&mut self, depth: usize) {
            self.0.set_depth(depth);
        }

        fn max_depth(&self) -> usize {
            self.0.max_depth()
        }

        fn gen_variant(&mut self, variants: usize, base_case: usize) -> Option<usize> {
            self.0.gen_variant(variants, base_case)
        }

        fn gen_bool(&mut self, probability: Option<f32>) -> Option<bool> {
            self.0.gen_bool(probability)
        }

        field_0_draws!(gen_u8: u8, gen_u16: u16, gen_u32: u32, gen_u64: u64, gen_u128: u128, gen_usize: usize);
        field_0_draws!(gen_i8: i8, gen_i16: i16, gen_i32: i32, gen_i64: i64, gen_i128: i128, gen_isize: isize);
        field_0_draws!(gen_f32: f32, gen_f64: f64, gen_char: char);
    };
    ($($name:ident: $value:ty),*) => {
        $(
            fn $name(&mut self, min: Bound<&$value>, max: Bound<&$value>) -> Option<$value> {
                self.0.$name(min, max)
            }
        )*
    };
}

impl DynDriver for Drawing<'_> {
    field_0_draws!();

    fn gen_from_bytes(
        &mut self,
        hint: &mut dyn FnMut() -> (usize, Option<usize>),
        produce: &mut dyn FnMut(&[u8]) -> Option<usize>,
    ) -> Option<()> {
        self.0.gen_from_bytes(hint, produce)
    }
}

impl<D: Driver> DynDriver for Lent<'_, D> {
    field_0_draws!();

    fn gen_from_bytes(
        &mut self,
        hint: &mut dyn FnMut() -> (usize, Option<usize>),
        produce: &mut dyn FnMut(&[u8]) -> Option<usize>,
    ) -> Option<()> {
        self.0.gen_from_bytes(hint, |bytes| Some((produce(bytes)?, ())))
    }
}
