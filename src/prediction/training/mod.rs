//! Examples to train classifiers with, and measurements of how well they do.

pub mod evaluation;
pub mod examples;
