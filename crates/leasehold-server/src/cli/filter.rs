//! Selects jobs: flags for the common terms, and `--filter` for all of them.

use leasehold::JobState;
use leasehold::admin::JobFilter;

use crate::exit::Failure;

/// The flags that select jobs.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Filter {
    /// Select jobs of this queue
    #[arg(long, value_parser = not_empty)]
    pub queue: Option<String>,
    /// Select jobs of this name; `*` matches any text: 'email.*'
    #[arg(long, value_parser = not_empty)]
    pub name: Option<String>,
    /// Select jobs with this tag; `*` matches any text
    #[arg(long, value_parser = not_empty)]
    pub tag: Option<String>,
    /// Select jobs by a filter: 'state:retrying error:"timed out" older:1h'
    #[arg(long, value_name = "TERMS")]
    pub filter: Option<JobFilter>,
}

/// Rejects an empty value: a script whose variable is not set would select other jobs than it names, and
/// most jobs have no tag.
fn not_empty(text: &str) -> Result<String, String> {
    match text {
        "" => {
            Err("it is empty; give a value, or for jobs without a tag: --filter 'tag:\"\"'"
                .to_owned())
        }
        text => Ok(text.to_owned()),
    }
}

impl Filter {
    /// True if no term is given. A filter without terms, such as `--filter ''`, matches every job, and
    /// must not count as a choice.
    pub fn is_empty(&self) -> bool {
        self.queue.is_none()
            && self.name.is_none()
            && self.tag.is_none()
            && self.filter.as_ref().is_none_or(JobFilter::is_any)
    }

    /// Joins the flags to one filter.
    pub fn join(&self) -> Result<JobFilter, Failure> {
        let mut flags = JobFilter::any();
        if let Some(queue) = &self.queue {
            flags = flags.queue(queue);
        }
        if let Some(name) = &self.name {
            flags = flags.name(name);
        }
        if let Some(tag) = &self.tag {
            flags = flags.tag(tag);
        }
        flags.and(self.filter.clone().unwrap_or_default()).map_err(Failure::usage)
    }
}

/// States by their words. `waiting`: scheduled, ready and retrying.
#[derive(Clone, Debug)]
pub struct States(pub Vec<JobState>);

impl std::str::FromStr for States {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        match word {
            "waiting" => Ok(Self(JobState::WAITING.to_vec())),
            other => match other.parse() {
                Ok(state) => Ok(Self(vec![state])),
                Err(error) => Err(format!("{error}, waiting")),
            },
        }
    }
}
