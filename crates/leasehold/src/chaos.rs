//! Fault points for tests, compiled in only with the feature `chaos`.
//!
//! The environment decides what a point does: `LEASEHOLD_CHAOS="keeper.tick=panic"`.

/// A place where a test may make the program fail.
#[allow(clippy::panic, reason = "failing is what it is for")]
pub fn point(name: &str) {
    let Ok(plan) = std::env::var("LEASEHOLD_CHAOS") else { return };
    for step in plan.split(',') {
        if let Some((step, action)) = step.split_once('=')
            && step == name
        {
            match action {
                "panic" => panic!("chaos at {name}"),
                "abort" => std::process::abort(),
                _ => {}
            }
        }
    }
}
