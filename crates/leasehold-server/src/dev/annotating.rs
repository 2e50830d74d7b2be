//! The annotation service of `leasehold dev`: a text to annotate, next to a private server.

use std::net::SocketAddr;

use annotations::{Annotations, NewAnnotation, Settings};
use clap::Args;
use leasehold::Leasehold;

use super::server::Server;
use crate::exit::Failure;
use crate::run::{Service, Stopping};
use crate::serve;
use crate::serve::annotations::{IndexOptions, LISTEN, http_service, origins, start, working};

#[derive(Args, Debug)]
pub struct Annotating {
    /// Serve annotations at this address. Default: 127.0.0.1:8081, or a free port if that is taken
    #[arg(long, value_name = "ADDRESS:PORT", env = "LEASEHOLD_ANNOTATIONS_LISTEN")]
    annotations_listen: Option<SocketAddr>,
    /// Let pages of these origins read and write notes from a browser, such as
    /// http://127.0.0.1:3000, separated by commas. localhost does not work: for a browser it is
    /// another site, which does not get the log-in
    #[arg(
        long,
        env = "LEASEHOLD_ANNOTATIONS_ORIGINS",
        value_name = "ORIGINS",
        value_delimiter = ','
    )]
    annotations_origins: Vec<String>,
    /// Start no annotation service
    #[arg(long, conflicts_with = "annotations_listen")]
    no_annotations: bool,
}

impl Annotating {
    /// With a private server only: the user's own database gets no tables unasked.
    pub fn wanted(&self, server: &Server) -> bool {
        !self.no_annotations && matches!(server, Server::Private { .. })
    }

    pub async fn start(
        &self,
        engine: &Leasehold,
        server: &Server,
        demo: bool,
        stopping: &Stopping,
    ) -> Result<Vec<Service>, Failure> {
        let listener = serve::listen_somewhere(self.annotations_listen, LISTEN).await;
        let listener = listener.map_err(serve::named_by("--annotations-listen"))?;
        let url = format!("http://{}", serve::reachable(listener.local_addr()?));
        let mut settings = Settings {
            base_url: url,
            sign_up: true,
            origins: origins(&self.annotations_origins),
            ..Settings::default()
        };
        // On one machine all requests come from one address, which rate limits would block.
        settings.limits.saves_per_second = 0;
        settings.limits.reads_per_second = 0;
        let index = match server {
            Server::Private { postgres, .. } => {
                IndexOptions::in_dir(postgres.dir().join("annotations-index"))
            }
            Server::Named { .. } => IndexOptions::default(),
        };
        let notes = start(engine.clone(), &index, settings, true).await?;
        if demo {
            show(&notes).await?;
        }
        Ok(vec![http_service(&notes, listener, stopping), working(&notes, stopping)?])
    }
}

/// Creates three example notes, once.
async fn show(notes: &Annotations) -> Result<(), Failure> {
    const NAME: &str = "sophiathefirst";
    if notes.user(NAME).await.is_ok() {
        return Ok(());
    }
    let (author, _) = notes.sign_up(NAME, "").await?;
    let url = format!("{}/", notes.settings().base_url);
    for (quote, text) in [
        ("Don Quixote added it up", "Out of his mind, and still good at sums?"),
        (
            "if he spoiled the leather of the shoes you paid for, you have damaged that of his body",
            "An eye for an eye, in leather",
        ),
        ("closer than a lizard", "They do hide well"),
    ] {
        let selectors = vec![serde_json::json!({ "type": "TextQuoteSelector", "exact": quote })];
        let new = NewAnnotation {
            url: url.clone(),
            quote: quote.to_owned(),
            selectors,
            text: text.to_owned(),
            ..NewAnnotation::default()
        };
        notes.create(&author, new).await?;
    }
    Ok(())
}
