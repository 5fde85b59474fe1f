//! The engine of [`check!`](crate::check).

use crate::erased::{Erased, Shown, Target};
use bolero::bolero_engine::{Failure, Input, Seed, panic, rng::Recommended};
use bolero::generator::bolero_generator::driver::{self, Options};
use bolero::{DefaultEngine, Engine, TargetLocation, Test, TypeGenerator};
use rand_core::{RngCore, SeedableRng};
use std::env;
use std::fmt::Debug;

/// Runs a target's corpus, then inputs by seeds that never change.
#[derive(Debug)]
pub struct SameInputs {
    pub(super) location: TargetLocation,
    /// How many there are after the corpus.
    pub(super) inputs: usize,
}

impl<T: Test<Value: Debug>> Engine<T> for SameInputs {
    type Output = ();

    fn run(self, mut test: T, options: Options) {
        run(self, &mut test, &options);
    }
}

fn run(SameInputs { location, inputs }: SameInputs, target: &mut dyn Target, options: &Options) {
    let mut test = Erased::new(target, &mut Drawn::new(0, options).driver);
    let mut bolero = DefaultEngine::new(location);
    let by_its_own_rules = env::vars_os().any(|(name, _)| name.as_encoded_bytes().starts_with(b"BOLERO_RANDOM_"));
    bolero.with_iterations(if by_its_own_rules { inputs } else { 0 });
    bolero.run(test.again(), options.clone());
    if by_its_own_rules {
        return;
    }
    let previous = panic::forward_panic(false);
    let failure = seeds().take(inputs).find_map(|seed| fails(&mut test, seed, options));
    panic::forward_panic(previous);
    if let Some(failure) = failure {
        eprintln!("{failure:#}");
        panic!("test failed");
    }
}

fn fails(test: &mut Erased<'_>, seed: Seed, options: &Options) -> Option<Failure<Shown>> {
    let error = test.test(&mut Drawn::new(seed, options)).err()?;
    Some(Failure { error, input: test.generate_value(&mut Drawn::new(seed, options)), seed: Some(seed) })
}

/// What bolero takes as `BOLERO_RANDOM_SEED`, one for each input.
fn seeds() -> impl Iterator<Item = Seed> {
    let mut random = Recommended::seed_from_u64(0);
    std::iter::repeat_with(move || {
        let mut seed = [0; size_of::<Seed>()];
        random.fill_bytes(&mut seed);
        Seed::from_le_bytes(seed)
    })
}

/// The input that bolero draws by a seed.
struct Drawn {
    driver: driver::Rng<Recommended>,
    bytes: Vec<u8>,
}

impl Drawn {
    fn new(seed: Seed, options: &Options) -> Self {
        Self { driver: driver::Rng::new(Recommended::from_seed(seed.to_le_bytes()), options), bytes: Vec::new() }
    }
}

impl<Output> Input<Output> for Drawn {
    type Driver = driver::Rng<Recommended>;

    fn with_slice<F: FnMut(&[u8]) -> Output>(&mut self, f: &mut F) -> Output {
        self.bytes.mutate(&mut self.driver);
        f(&self.bytes)
    }

    fn with_driver<F: FnMut(&mut Self::Driver) -> Output>(&mut self, f: &mut F) -> Output {
        f(&mut self.driver)
    }
}
