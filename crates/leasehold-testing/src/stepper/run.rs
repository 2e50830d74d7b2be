use std::fmt;

use super::script::{Answer, Script, StepError};

/// The result of a step.
pub type Outcome = Result<Answer, StepError>;

/// One run of all scripts in one order.
#[derive(Debug, Clone)]
pub struct Run {
    pub(super) scripts: Vec<(String, Vec<String>)>,
    pub(super) events: Vec<Event>,
}

/// A step of a script, both counted from 0.
pub(super) type Place = (usize, usize);

#[derive(Debug, Clone)]
pub(super) enum Event {
    Started(Place),
    /// The step waits for a lock of another script.
    Waits(Place),
    Ended(Place, Outcome),
}

impl Run {
    pub(super) fn new(scripts: &[Script]) -> Self {
        let names = |script: &Script| script.steps.iter().map(|step| step.name.clone()).collect();
        Self {
            scripts: scripts.iter().map(|script| (script.name.clone(), names(script))).collect(),
            events: Vec::new(),
        }
    }

    /// Returns the result of a step. Panics if there is no such step, because then the test is wrong.
    #[expect(clippy::panic, reason = "the test fails here")]
    pub fn outcome(&self, script: &str, step: usize) -> &Outcome {
        let index = self.scripts.iter().position(|(name, _)| name == script);
        let place = (index.unwrap_or_else(|| panic!("no script is called {script}")), step);
        let found = self.events.iter().find_map(|event| match event {
            Event::Ended(ended, outcome) if *ended == place => Some(outcome),
            _ => None,
        });
        found.unwrap_or_else(|| {
            panic!("script {script} has no step {step} (they are counted from 0)")
        })
    }

    /// Returns the first error of a script.
    pub fn error(&self, script: &str) -> Option<&StepError> {
        let index = self.scripts.iter().position(|(name, _)| name == script)?;
        self.events.iter().find_map(|event| match event {
            Event::Ended((ended, _), Err(error)) if *ended == index => Some(error),
            _ => None,
        })
    }

    /// Returns whether any step had to wait for a lock.
    pub fn waited(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Waits(_)))
    }

    /// Returns how many steps ended with this SQLSTATE.
    pub fn count_errors(&self, code: &str) -> usize {
        let is = |event: &&Event| matches!(event, Event::Ended(_, Err(error)) if error.code.as_deref() == Some(code));
        self.events.iter().filter(is).count()
    }

    fn name(&self, (script, step): Place) -> String {
        let (name, steps) = &self.scripts[script];
        format!("{name}: {}", steps[step])
    }
}

/// Prints the order, one line per event.
impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut waiting = Vec::new();
        for event in &self.events {
            match event {
                Event::Started(place) => writeln!(f, "  {}", self.name(*place))?,
                Event::Waits(place) => {
                    waiting.push(*place);
                    writeln!(f, "    … waits")?;
                }
                Event::Ended(place, Ok(_)) if waiting.contains(place) => {
                    writeln!(f, "  … {} continues", self.name(*place))?;
                }
                Event::Ended(_, Ok(_)) => {}
                Event::Ended(place, Err(error)) => {
                    writeln!(f, "  … {} fails: {error}", self.name(*place))?;
                }
            }
        }
        Ok(())
    }
}
