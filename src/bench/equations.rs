//! The cost model of speculative tool calls in closed form: equations 1 to 6 and Lemma 1 of "Optimizing Agentic
//! Language Model Inference via Speculative Tool Calls" (Nichols et al., arXiv 2512.15834). All times in seconds.

/// One request of an agent on the client's side: the model generates a call, the tool runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Request {
    /// G: the model's generation.
    pub generation: f64,
    /// T: the tool.
    pub tool: f64,
    /// g: the draft model's generation.
    pub draft: f64,
}

impl Request {
    /// Equation 1 without speculation, for one request.
    pub(super) fn standard(self) -> f64 {
        self.generation + self.tool
    }

    /// Equation 1 with speculation, for one request. The paper writes `g + T` for a hit. A draft that is slower
    /// than the model is no use, but no harm either: the call then runs on time, so g counts as at most G.
    pub(super) fn speculative(self, acceptance: f64) -> f64 {
        let hit = self
            .generation
            .max(self.draft.min(self.generation) + self.tool);
        acceptance * hit + (1.0 - acceptance) * self.standard()
    }

    /// Equation 2: the speed-up.
    pub(super) fn speedup(self, acceptance: f64) -> f64 {
        self.standard() / self.speculative(acceptance)
    }

    /// Equation 3, for `g + T >= G`: whether there is any speed-up.
    pub(super) fn gains(self, acceptance: f64) -> bool {
        acceptance > 0.0 && self.draft < self.generation
    }

    /// Lemma 1: no speed-up exceeds this, and it is below 2.
    pub(super) fn bound(self) -> f64 {
        2.0 - 2.0 * self.draft / (self.generation + self.draft + self.tool)
    }

    /// The share of time that speculation saves, 0..1.
    pub(super) fn saved(self, acceptance: f64) -> f64 {
        1.0 - self.speculative(acceptance) / self.standard()
    }
}

/// Consecutive turns of one agent, seen from the inference engine. All turns are alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Engine {
    /// K.
    pub turns: usize,
    /// o: one way between client and batch, s.
    pub overhead: f64,
    /// Phi: prefill, s per token.
    pub prefill: f64,
    /// Delta: decode, s per token.
    pub decode: f64,
    /// X1: tokens of the first prompt.
    pub prompt: usize,
    /// R: reasoning tokens of a turn.
    pub reasoning: usize,
    /// t: tokens of a call.
    pub call: usize,
    /// to: tokens of a tool's output.
    pub output: usize,
    /// T: the tool, s.
    pub tool: f64,
}

impl Engine {
    /// Equation 4: every request is prefilled from its beginning.
    pub(super) fn vanilla(self) -> f64 {
        let prompts = (0..self.turns).map(|turn| self.prompt + turn * (self.call + self.output));
        self.around(1.0)
            + self.prefill * prompts.sum::<usize>() as f64
            + self.decode * (self.turns * (self.reasoning + self.call)) as f64
    }

    /// Equation 5: with a prefix cache.
    pub(super) fn cached(self) -> f64 {
        self.speculative(0.0)
    }

    /// Equation 6: with a tool cache in the engine, for results that are there before they are needed.
    pub(super) fn speculative(self, acceptance: f64) -> f64 {
        let missed = 1.0 - acceptance;
        let turns = self.turns as f64;
        let decoded = self.reasoning as f64 + acceptance + missed * self.call as f64;
        self.around(missed)
            + self.prefill * (self.prompt + self.turns * (self.call + self.output)) as f64
            + self.decode * turns * decoded
    }

    /// The saving of equation 6 over equation 5 at acceptance 1, as the paper writes it.
    pub(super) fn greatest_saving(self) -> f64 {
        let turns = self.turns as f64;
        self.around(1.0) + self.decode * turns * (self.call as f64 - 1.0)
    }

    /// Ways to the client and back, and tools, of this share of the turns.
    fn around(self, share: f64) -> f64 {
        share * self.turns as f64 * (2.0 * self.overhead + self.tool)
    }
}

/// The mean of `min(x, limit)` for normally distributed `x`: how much of a tool that varies fits into a gap.
pub(super) fn mean_of_least(mean: f64, deviation: f64, limit: f64) -> f64 {
    if deviation == 0.0 {
        return mean.min(limit);
    }
    let z = (mean - limit) / deviation;
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    mean - (mean - limit) * normal_below(z) - deviation * density
}

/// The standard normal distribution function, to 1e-7: Abramowitz and Stegun 26.2.17.
fn normal_below(z: f64) -> f64 {
    const WEIGHTS: [f64; 5] = [
        0.319_381_530,
        -0.356_563_782,
        1.781_477_937,
        -1.821_255_978,
        1.330_274_429,
    ];
    let t = 1.0 / (1.0 + 0.231_641_9 * z.abs());
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    let series = WEIGHTS
        .iter()
        .rev()
        .fold(0.0, |sum, weight| (sum + weight) * t);
    let tail = density * series;
    if z > 0.0 { 1.0 - tail } else { tail }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paper(tool: f64) -> f64 {
        let (generation, draft) = (6.3, 4.05);
        let request = Request {
            generation,
            tool,
            draft,
        };
        100.0 * request.saved(0.8)
    }

    #[test]
    fn the_closed_form_gives_the_papers_points() {
        for (tool, percent) in [(0.5, 5.9), (2.25, 21.0), (3.0, 19.4)] {
            assert!((paper(tool) - percent).abs() < 0.1, "{}", paper(tool));
        }
        let best = (1..400).map(|tenth| paper(f64::from(tenth) / 100.0));
        assert!(best.fold(0.0, f64::max) <= paper(2.25) + 1e-9);
    }

    #[test]
    fn a_slow_draft_changes_nothing() {
        let request = Request {
            generation: 1.0,
            tool: 1.0,
            draft: 3.0,
        };
        assert!((request.speculative(1.0) - request.standard()).abs() < 1e-12);
    }

    #[test]
    fn a_tool_that_varies_fits_less_well_into_the_gap() {
        assert!((mean_of_least(1.0, 0.0, 2.0) - 1.0).abs() < 1e-9);
        assert!((mean_of_least(1.0, 0.1, 9.0) - 1.0).abs() < 1e-6);
        // At the limit the mean of the excess is the deviation over the square root of 2 pi.
        let lost = 2.0 - mean_of_least(2.0, 0.5, 2.0);
        assert!(
            (lost - 0.5 / std::f64::consts::TAU.sqrt()).abs() < 1e-6,
            "{lost}"
        );
    }
}
