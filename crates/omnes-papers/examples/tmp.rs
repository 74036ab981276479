//! x
fn main() {
    omnes_papers::figures(omnes_papers::Paper::Broadcast);
}
