//! The share of conversations that are traced.

use super::Parent;

/// The number of random bits at the end of a trace id (W3C Trace Context, level 2). In a session's id, a UUID, fixed
/// bits come before them.
const RANDOM: u32 = 56;

/// Decides whether a conversation is traced.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// The share of traces that are kept, 0 to 1. Their ids decide, so that all servers keep the same ones.
    pub share: f64,
    /// A client that has a trace decides instead.
    pub follows_client: bool,
}

impl Default for Sampler {
    /// All, except for those that the client does not keep.
    fn default() -> Self {
        Self {
            share: 1.0,
            follows_client: true,
        }
    }
}

impl Sampler {
    pub(super) fn keeps(self, trace: [u8; 16], parent: Option<Parent>) -> bool {
        if let Some(parent) = parent.filter(|_| self.follows_client) {
            return parent.sampled;
        }
        let all = 1_u128 << RANDOM;
        let dropped = (1.0 - self.share) * all as f64;
        u128::from_be_bytes(trace) % all >= dropped as u128
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn sampler(share: f64, follows_client: bool) -> Sampler {
        Sampler {
            share,
            follows_client,
        }
    }

    #[test]
    fn a_client_decides_only_if_it_is_followed() {
        let trace = [7; 16];
        for sampled in [false, true] {
            let parent = Some(Parent {
                trace,
                span: [1; 8],
                sampled,
            });
            assert_eq!(Sampler::default().keeps(trace, parent), sampled);
            assert_eq!(sampler(0.0, true).keeps(trace, parent), sampled);
            assert!(sampler(1.0, false).keeps(trace, parent));
            assert!(!sampler(0.0, false).keeps(trace, parent));
        }
        assert!(Sampler::default().keeps(trace, None));
        assert!(!sampler(0.0, true).keeps(trace, None));
    }

    #[test]
    fn the_last_bits_of_the_id_decide() {
        let id = |last: u128| ((u128::MAX << RANDOM) | last).to_be_bytes();
        let quarter = 1 << (RANDOM - 2);
        let some = sampler(0.25, true);
        assert!(!some.keeps(id(3 * quarter - 1), None));
        assert!(some.keeps(id(3 * quarter), None));
        for last in [0, 4 * quarter - 1] {
            assert!(sampler(1.0, true).keeps(id(last), None));
            assert!(!sampler(0.0, true).keeps(id(last), None));
        }
    }

    /// The usual rule would look at bits that are the same in all ids of sessions.
    #[test]
    fn a_share_of_sessions_is_kept() {
        let half = sampler(0.5, true);
        let ids = (0..1_000).map(|_| *Uuid::new_v4().as_bytes());
        let kept = ids.filter(|id| half.keeps(*id, None)).count();
        assert!((300..700).contains(&kept), "{kept}");
    }
}
