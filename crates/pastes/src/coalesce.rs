//! Requests that share a statement: those that arrive while one is in flight share the next.
//!
//! They then share one round trip, and a write shares one commit and one disk flush.
//!
//! # Invariants
//! - A request that finds its lane full is refused at once: nothing waits without a bound.
//! - If a batch has no results, each of its requests gets [`NoResult::Unknown`], never a success.

use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{mpsc, oneshot};

/// How requests are grouped.
pub struct Limits<Q> {
    /// The most requests per batch.
    pub requests: usize,
    /// The most weight per batch, beyond its first request.
    pub weight: usize,
    pub weight_of: fn(&Q) -> usize,
    /// How many requests may wait per lane.
    pub waiting: usize,
}

/// Why a request has no result.
#[derive(Debug, PartialEq, Eq)]
pub enum NoResult<Q> {
    /// Too many requests wait. This one was not sent.
    Full(Q),
    /// Whether it took effect is unknown.
    Unknown,
}

type Request<Q, A> = (Q, oneshot::Sender<A>);

/// Collects requests into batches, in a few lanes that work in parallel.
pub struct Coalescer<Q, A> {
    lanes: Vec<mpsc::Sender<Request<Q, A>>>,
    next: AtomicUsize,
}

impl<Q: Send + 'static, A: Send + 'static> Coalescer<Q, A> {
    /// Starts one task per handler. A handler returns the results of a batch in the order of its
    /// requests, or `None` if they are unknown. The tasks stop when this handle is dropped.
    pub fn start<H, F>(limits: Limits<Q>, handlers: impl IntoIterator<Item = H>) -> Self
    where
        H: Fn(Vec<Q>) -> F + Send + 'static,
        F: Future<Output = Option<Vec<A>>> + Send + 'static,
    {
        let Limits { requests, weight, weight_of, waiting } = limits;
        let lane = |handler| {
            let (sender, receiver) = mpsc::channel(waiting);
            tokio::spawn(run(Lane { receiver, requests, weight, weight_of }, handler));
            sender
        };
        Self { lanes: handlers.into_iter().map(lane).collect(), next: AtomicUsize::new(0) }
    }

    /// Sends a request with the next batch of its lane, and returns its result.
    pub async fn request(&self, request: Q) -> Result<A, NoResult<Q>> {
        let turn = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len().max(1);
        let (reply, result) = oneshot::channel();
        let Some(lane) = self.lanes.get(turn) else { return Err(NoResult::Full(request)) };
        lane.try_send((request, reply))
            .map_err(|refused| NoResult::Full(refused.into_inner().0))?;
        result.await.map_err(|_| NoResult::Unknown)
    }
}

struct Lane<Q, A> {
    receiver: mpsc::Receiver<Request<Q, A>>,
    requests: usize,
    weight: usize,
    weight_of: fn(&Q) -> usize,
}

impl<Q, A> Lane<Q, A> {
    /// Returns the next batch, or `None` when no request can come any more.
    async fn batch(&mut self) -> Option<Vec<Request<Q, A>>> {
        let first = self.receiver.recv().await?;
        let mut weight = (self.weight_of)(&first.0);
        let mut batch = vec![first];
        while batch.len() < self.requests && weight < self.weight {
            let Ok(next) = self.receiver.try_recv() else { break };
            weight += (self.weight_of)(&next.0);
            batch.push(next);
        }
        Some(batch)
    }
}

async fn run<Q, A, H, F>(mut lane: Lane<Q, A>, handler: H)
where
    H: Fn(Vec<Q>) -> F,
    F: Future<Output = Option<Vec<A>>>,
{
    while let Some(batch) = lane.batch().await {
        let (requests, replies): (Vec<Q>, Vec<_>) = batch.into_iter().unzip();
        // Without results the replies are dropped, and their receivers get an error.
        let results = handler(requests).await.unwrap_or_default();
        for (reply, result) in replies.into_iter().zip(results) {
            // Sending fails only if the client has disconnected.
            let _ = reply.send(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::future::join_all;
    use tokio::sync::{Notify, Semaphore};

    use super::*;

    const LIMITS: Limits<usize> =
        Limits { requests: 3, weight: 10, weight_of: |number| *number, waiting: 4 };

    /// A coalescer of one lane whose handler returns to each number the batch that it was in.
    struct Gated {
        numbers: Coalescer<usize, Vec<usize>>,
        /// Notified when a batch begins.
        begun: Arc<Notify>,
        /// Lets one batch pass per permit.
        gate: Arc<Semaphore>,
    }

    impl Gated {
        fn start() -> Arc<Self> {
            let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
            let (notify, wait) = (Arc::clone(&begun), Arc::clone(&gate));
            let handler = move |numbers: Vec<usize>| {
                let (notify, wait) = (Arc::clone(&notify), Arc::clone(&wait));
                async move {
                    notify.notify_one();
                    wait.acquire().await.ok()?.forget();
                    Some(vec![numbers.clone(); numbers.len()])
                }
            };
            Arc::new(Self { numbers: Coalescer::start(LIMITS, [handler]), begun, gate })
        }

        async fn request_all(&self, numbers: &[usize]) -> Vec<Result<Vec<usize>, NoResult<usize>>> {
            join_all(numbers.iter().map(|number| self.numbers.request(*number))).await
        }
    }

    #[tokio::test]
    async fn requests_share_the_batch_after_the_one_in_flight() {
        let gated = Gated::start();
        let first = {
            let gated = Arc::clone(&gated);
            tokio::spawn(async move { gated.numbers.request(1).await })
        };
        gated.begun.notified().await;
        let opening = async { gated.gate.add_permits(2) };
        let (others, ()) = tokio::join!(gated.request_all(&[2, 3, 4]), opening);
        assert_eq!(first.await.expect("a task"), Ok(vec![1]));
        assert_eq!(others, [(); 3].map(|()| Ok(vec![2, 3, 4])));
    }

    #[tokio::test]
    async fn batch_ends_at_its_number_of_requests_and_at_its_weight() {
        let gated = Gated::start();
        gated.gate.add_permits(4);
        let batches = gated.request_all(&[1, 1, 1, 1]).await;
        assert_eq!(batches, [vec![1, 1, 1], vec![1, 1, 1], vec![1, 1, 1], vec![1]].map(Ok));
        let batches = gated.request_all(&[1, 9, 8, 1]).await;
        assert_eq!(batches, [vec![1, 9], vec![1, 9], vec![8, 1], vec![8, 1]].map(Ok));
    }

    #[tokio::test]
    async fn full_lane_refuses_further_requests() {
        let gated = Gated::start();
        gated.gate.add_permits(9);
        let results = gated.request_all(&[0, 1, 2, 3, 4]).await;
        assert_eq!(results.last(), Some(&Err(NoResult::Full(4))));
    }

    #[tokio::test]
    async fn batch_without_results_is_unknown_to_its_requests() {
        let numbers = Coalescer::<usize, usize>::start(LIMITS, [async |_| None]);
        assert_eq!(numbers.request(1).await, Err(NoResult::Unknown));
    }
}
