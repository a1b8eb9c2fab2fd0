//! Telephone calls.
