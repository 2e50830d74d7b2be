//! Accepts connections, and applies the rules to each request before and after the store.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::Request;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use s3s::service::S3Service;
use s3s::{Body, HttpResponse};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::call::Call;
use super::damage::{damaged, pretence, refusal};
use super::log::{Log, Outcome};
use super::rule::Fault;
use super::rules::{RuleId, Rules};

/// The largest request. Larger ones are refused with 413.
pub(super) const MAX_BODY: usize = 64 * 1024 * 1024;
const MAX_CONNECTIONS: usize = 512;
/// Requests that wait for a rule to be removed. More than that are refused with 503.
const MAX_HELD: usize = 256;

/// The connection ends here because a rule cuts it.
#[derive(Debug, thiserror::Error)]
#[error("the connection was cut")]
pub(super) struct Cut;

pub(super) struct Gateway {
    pub s3: S3Service,
    pub rules: Rules,
    pub log: Arc<Log>,
    pub down: watch::Sender<bool>,
    /// Counts connections, and requests on open ones, that found the server down.
    pub turned_away: watch::Sender<u64>,
    connections: Arc<Semaphore>,
    held: Arc<Semaphore>,
}

impl Gateway {
    pub(super) fn before(s3: S3Service, log: Arc<Log>) -> Arc<Self> {
        Arc::new(Self {
            s3,
            rules: Rules::default(),
            log,
            down: watch::Sender::new(false),
            turned_away: watch::Sender::new(0),
            connections: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            held: Arc::new(Semaphore::new(MAX_HELD)),
        })
    }

    pub(super) async fn accept(self: Arc<Self>, listener: std::net::TcpListener) -> io::Result<()> {
        let listener = TcpListener::from_std(listener)?;
        loop {
            let Ok(permit) = self.connections.clone().acquire_owned().await else {
                return Ok(());
            };
            match listener.accept().await {
                Ok(_) if *self.down.borrow() => self.turn_away(),
                Ok((stream, _)) => {
                    tokio::spawn(self.clone().serve(stream, permit));
                }
                // Out of file handles: other connections will end and free some.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }

    async fn serve(self: Arc<Self>, stream: TcpStream, _permit: OwnedSemaphorePermit) {
        let _ = stream.set_nodelay(true);
        let mut down = self.down.subscribe();
        let answering = service_fn(|request| self.clone().answer(request));
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answering);
        tokio::select! {
            _ = connection => {}
            _ = down.wait_for(|down| *down) => {}
        }
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Result<HttpResponse, Cut> {
        // This request came between the start of the outage and the end of its connection.
        if *self.down.borrow() {
            self.turn_away();
            return Err(Cut);
        }
        let (head, body) = request.into_parts();
        let body = match Limited::new(body, MAX_BODY).collect().await {
            Ok(body) => body.to_bytes(),
            Err(why) if why.is::<http_body_util::LengthLimitError>() => return Ok(refusal(413)),
            Err(_) => return Err(Cut),
        };
        let mut call = Call::read(&head, &body);
        let met = self.rules.meet(&call);
        for (id, part) in met.hidden {
            self.rules.fire(id);
            call.tamper.hide.push(part);
        }
        match met.fault {
            None => self.apply(call, head, body).await,
            Some((id, fault, part)) => self.meet(id, fault, part, call, head, body).await,
        }
    }

    async fn meet(
        self: Arc<Self>,
        id: RuleId,
        fault: Fault,
        part: String,
        mut call: Call,
        head: Parts,
        body: Bytes,
    ) -> Result<HttpResponse, Cut> {
        match fault {
            Fault::Fail(status) => {
                self.note(&call, Outcome::Refused(status));
                self.rules.fire(id);
                Ok(refusal(status))
            }
            Fault::DropBefore => {
                self.note(&call, Outcome::Dropped);
                self.rules.fire(id);
                Err(Cut)
            }
            Fault::Pretend => {
                self.note(&call, Outcome::Pretended);
                self.rules.fire(id);
                Ok(pretence())
            }
            Fault::DropReply => {
                call.outcome = Outcome::Lost;
                let _ = self.apply(call, head, body).await;
                self.rules.fire(id);
                Err(Cut)
            }
            Fault::FlipByte | Fault::Shorten | Fault::CutInside => {
                call.outcome = Outcome::Damaged;
                let answer = damaged(self.apply(call, head, body).await?, fault).await;
                self.rules.fire(id);
                answer
            }
            Fault::Corrupt => {
                call.outcome = Outcome::Damaged;
                call.tamper.corrupt = true;
                let answer = self.apply(call, head, body).await;
                self.rules.fire(id);
                answer
            }
            Fault::RefuseKeys => {
                call.tamper.refuse = Some(part);
                let answer = self.apply(call, head, body).await;
                self.rules.fire(id);
                answer
            }
            Fault::HoldReply => {
                let answer = self.apply(call, head, body).await;
                self.rules.fire(id);
                self.rules.until_removed(id).await;
                answer
            }
            Fault::Hold | Fault::LandLater => {
                let Ok(permit) = self.held.clone().try_acquire_owned() else {
                    self.note(&call, Outcome::Refused(503));
                    return Ok(refusal(503));
                };
                let (send, receive) = oneshot::channel();
                // A separate task: a client that times out ends its connection, but not this.
                tokio::spawn(self.clone().apply_later(id, call, head, body, send, permit));
                if fault == Fault::LandLater {
                    return Err(Cut);
                }
                receive.await.unwrap_or(Err(Cut))
            }
            Fault::HideKeys => self.apply(call, head, body).await,
        }
    }

    async fn apply_later(
        self: Arc<Self>,
        id: RuleId,
        mut call: Call,
        head: Parts,
        body: Bytes,
        send: oneshot::Sender<Result<HttpResponse, Cut>>,
        _permit: OwnedSemaphorePermit,
    ) {
        self.rules.fire(id);
        self.rules.until_removed(id).await;
        if send.is_closed() {
            call.outcome = Outcome::Late;
        }
        let answer = self.apply(call, head, body).await;
        let _ = send.send(answer);
    }

    /// Applies the request. The store logs it; a request that it never saw is logged here.
    async fn apply(&self, call: Call, head: Parts, body: Bytes) -> Result<HttpResponse, Cut> {
        let call = Arc::new(call);
        let mut request = Request::from_parts(head, Body::from(body));
        request.extensions_mut().insert(call.clone());
        let answer = self.s3.call(request).await.map_err(|_| Cut)?;
        if !call.is_logged() {
            self.note(&call, Outcome::Refused(answer.status().as_u16()));
        }
        Ok(answer)
    }

    fn turn_away(&self) {
        self.turned_away.send_modify(|count| *count += 1);
    }

    fn note(&self, call: &Call, outcome: Outcome) {
        self.log.note(call.op, call.keys.iter().map(|key| (key.as_str(), outcome)));
    }
}
