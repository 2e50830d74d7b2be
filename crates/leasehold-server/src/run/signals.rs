//! Ctrl-C and SIGTERM.

use leasehold::worker::StopSignals;

/// A stream of stop requests.
pub enum Signals {
    Real(StopSignals),
    /// This many at once, then none; for tests.
    #[cfg(test)]
    Fake(usize),
}

impl Signals {
    /// Catches both signals: from here on neither ends the process by itself.
    pub fn catch() -> std::io::Result<Self> {
        StopSignals::catch().map(Self::Real)
    }

    #[cfg(test)]
    pub fn never() -> Self {
        Self::Fake(0)
    }

    #[cfg(test)]
    pub fn ready(times: usize) -> Self {
        Self::Fake(times)
    }

    pub async fn next(&mut self) {
        match self {
            Self::Real(signals) => signals.next().await,
            #[cfg(test)]
            Self::Fake(0) => std::future::pending().await,
            #[cfg(test)]
            Self::Fake(left) => *left -= 1,
        }
    }
}
