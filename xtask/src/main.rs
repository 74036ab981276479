//! Chores of the Omnes workspace.
fn main() {}
