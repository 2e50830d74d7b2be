//! Plans as the server made them, also of the statements inside of functions.

use std::future::poll_fn;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::sql::{Sql, run};

/// A connection that is told the plan of every statement that it causes.
pub struct Explained {
    pub client: Client,
    notices: Receiver<String>,
}

/// A statement, what it read, and how.
#[derive(Debug)]
pub struct Plan {
    pub sql: String,
    /// Pages, from memory or from disk.
    pub pages: i64,
    /// Node type and index of each node that reads the job table.
    pub on_job: Vec<String>,
    /// Whether jobs or leases are read from the first to the last.
    pub whole: bool,
}

impl Explained {
    pub async fn connect(sql: &Sql) -> Self {
        let (client, mut connection) = sql.database.direct_config().connect(NoTls).await.unwrap();
        let (send, notices) = channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notice(notice) = message {
                    drop(send.send(notice.message().to_owned()));
                }
            }
        });
        run(
            &client,
            "load 'auto_explain'; set auto_explain.log_min_duration = 0; set auto_explain.log_analyze = on; \
             set auto_explain.log_buffers = on; set auto_explain.log_timing = off; \
             set auto_explain.log_nested_statements = on; set auto_explain.log_format = json; \
             set auto_explain.log_level = notice",
        )
        .await;
        Self { client, notices }
    }

    /// The plans of all statements that a call caused, the call itself last.
    pub async fn plans(&self, call: &str) -> Vec<Plan> {
        while self.notices.try_recv().is_ok() {}
        drop(
            self.client.query(call, &[]).await.unwrap_or_else(|error| panic!("{call}: {error:?}")),
        );
        let texts = self.notices.try_iter().collect::<Vec<_>>();
        let json =
            texts.iter().filter_map(|text| text.find('{').and_then(|begin| text.get(begin..)));
        json.map(|json| Plan::read(&serde_json::from_str(json).expect("a plan in JSON"))).collect()
    }

    /// The plan of the statement that contains this text.
    pub async fn plan(&self, call: &str, part: &str) -> Plan {
        let plans = self.plans(call).await;
        let count = plans.len();
        let found = plans.into_iter().find(|plan| plan.sql.contains(part) && plan.sql != call);
        found.unwrap_or_else(|| panic!("none of {count} statements contains {part}"))
    }
}

impl Plan {
    fn read(json: &Value) -> Self {
        let mut plan = Self {
            sql: json["Query Text"].as_str().unwrap_or("").to_owned(),
            pages: 0,
            on_job: Vec::new(),
            whole: false,
        };
        let top = &json["Plan"];
        plan.pages = top["Shared Hit Blocks"].as_i64().unwrap_or(0)
            + top["Shared Read Blocks"].as_i64().unwrap_or(0);
        plan.walk(top);
        plan
    }

    fn walk(&mut self, node: &Value) {
        let word = |name: &str| node[name].as_str().unwrap_or("").to_owned();
        // Where rows are written is no reading.
        if word("Relation Name") == "job" && word("Node Type") != "ModifyTable" {
            self.on_job
                .push(format!("{} {}", word("Node Type"), word("Index Name")).trim().to_owned());
        }
        let large = ["job", "lease"].contains(&word("Relation Name").as_str());
        self.whole |= large && word("Node Type").contains("Seq Scan");
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.walk(child);
        }
    }
}
