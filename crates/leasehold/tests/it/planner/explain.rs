//! Plans as the server made them, including those of statements inside functions.

use std::future::poll_fn;
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::sql::{Sql, run};

/// A connection that receives the plan of every statement that it causes.
pub struct Explained {
    pub client: Client,
    notices: Receiver<String>,
}

/// A look-up reads fewer pages than this, with or without a result; an index over 20,000 jobs has more.
const MANY_PAGES: f64 = 100.0;

/// A statement, what it read, and how.
#[derive(Debug)]
pub struct Plan {
    pub sql: String,
    /// Pages, from memory or from disk.
    pub pages: i64,
    /// Node type and index of each node that reads the job table.
    pub on_job: Vec<String>,
    /// Whether jobs or leases are read from the first to the last, in the table or in an index.
    pub whole: bool,
    /// Pairs of rows that a join compared for nothing.
    pub compared: f64,
    /// From the limit down to the rows that are locked, without nodes that pass rows on.
    pub to_locks: Vec<String>,
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

    /// Returns the plans of all statements that a call caused, the call itself last.
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

    /// Returns the plan of the statement that contains `part`.
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
            compared: 0.0,
            to_locks: Vec::new(),
        };
        let top = &json["Plan"];
        plan.pages = top["Shared Hit Blocks"].as_i64().unwrap_or(0)
            + top["Shared Read Blocks"].as_i64().unwrap_or(0);
        plan.walk(top, &[]);
        plan
    }

    fn walk(&mut self, node: &Value, above: &[String]) {
        let word = |name: &str| node[name].as_str().unwrap_or("").to_owned();
        // A node that writes rows does not count as a read.
        let reads = word("Node Type") != "ModifyTable";
        if word("Relation Name") == "job" && reads {
            self.on_job
                .push(format!("{} {}", word("Node Type"), word("Index Name")).trim().to_owned());
        }
        let large = reads && ["job", "lease"].contains(&word("Relation Name").as_str());
        let number = |name: &str| node[name].as_f64().unwrap_or(0.0);
        let pages = number("Shared Hit Blocks") + number("Shared Read Blocks");
        let rows = number("Actual Rows") * number("Actual Loops");
        self.whole |=
            large && (word("Node Type").contains("Seq Scan") || pages > MANY_PAGES + 10.0 * rows);
        self.compared += number("Rows Removed by Join Filter") * number("Actual Loops");
        // A limit begins a new path; a subquery only passes rows on.
        let mut path = if word("Node Type") == "Limit" { Vec::new() } else { above.to_vec() };
        if word("Node Type") != "Subquery Scan" {
            path.push(word("Node Type"));
        }
        if above.last().is_some_and(|node| node == "LockRows") {
            self.to_locks.clone_from(&path);
        }
        for child in node["Plans"].as_array().into_iter().flatten() {
            self.walk(child, &path);
        }
    }
}
