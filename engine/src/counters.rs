//! Counters of the engine since it started.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counts that only grow.
        #[derive(Debug, Default)]
        pub struct Counters {
            $($(#[$doc])* pub $name: Counter,)*
        }

        /// The counts at one moment.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// The counts so far.
            pub fn now(&self) -> Counts {
                Counts { $($name: self.$name.get(),)* }
            }
        }

        impl Counts {
            /// The difference to `earlier`.
            #[must_use]
            pub fn since(self, earlier: Self) -> Self {
                Self { $($name: self.$name - earlier.$name,)* }
            }
        }
    };
}

counters! {
    /// Requests for answers: each is one round trip of a client.
    requests,
    /// Evaluations of the model, each for a batch.
    forward_passes,
    /// Tokens of prompts that were read for new requests.
    prefilled_tokens,
    /// Tokens of calls and results that were read behind a cached call, in a sequence that stayed.
    appended_tokens,
    /// Tokens that the model has written one at a time.
    decoded_tokens,
    /// Tokens of cached calls that were found right, all of a call in one pass.
    validated_tokens,
    /// Tokens of cached calls that the model would not have written.
    rejected_tokens,
    /// Results that were posted.
    cached_outputs,
    /// Calls whose results were there.
    cache_hits,
    /// Calls whose results were not.
    cache_misses,
}

/// One count.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the count.
    pub fn add(&self, more: usize) {
        self.0.fetch_add(more as u64, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
