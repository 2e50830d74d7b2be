//! A table to sweep: loans that run out, each of one copy of a book. What a finish does is counted,
//! so that a row that is finished twice, or finished without its effect, shows.

use std::time::Duration;

use leasehold::Leasehold;
use leasehold::sweep::{States, Sweep};
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::fixture::{count, sql};
use crate::support;

/// Ten books; each loan that ends gives one copy back.
pub const TABLES: &str = "
    create schema library;
    create table library.books (
        id int primary key,
        out_on_loan int not null default 0 constraint not_given_back_twice check (out_on_loan >= 0));
    create table library.loans (
        id bigint primary key,
        book int not null,
        ends_at timestamptz not null,
        state text not null default 'out'
            constraint loan_state check (state in ('out', 'coming', 'back')),
        taken_at timestamptz,
        taken_by bigint);
    create index loans_out on library.loans (ends_at) where state = 'out';
    create index loans_coming on library.loans (taken_at) where state = 'coming';
    -- Every change of state, as it was committed.
    create table library.trail (
        at bigint generated always as identity, loan bigint, from_state text, to_state text,
        claim bigint, watchdog text);
    create function library.note_state() returns trigger language plpgsql as $$
    begin
        insert into library.trail (loan, from_state, to_state, claim, watchdog)
        values (new.id, old.state, new.state, coalesce(new.taken_by, old.taken_by),
                current_setting('leasehold.watchdog', true));
        return null;
    end $$;
    create trigger note_state after update of state on library.loans
        for each row when (old.state <> new.state) execute function library.note_state();
";

/// One copy back for each loan that ends.
pub const GIVE_BACK: &str = "
    update library.books b set out_on_loan = b.out_on_loan - f.n
      from (select book, count(*) as n from finished group by book order by book) f
     where b.id = f.book";

pub struct Shelf {
    // Before the database, so that its connections close first.
    pub engine: Leasehold,
    pub client: Client,
    pub database: TestDatabase,
}

impl Shelf {
    pub async fn new() -> Self {
        let database = TestDatabase::new().await;
        let client = database.connect_directly().await;
        sql(&client, TABLES).await;
        let engine = support::engine(&database).await;
        Self { engine, client, database }
    }

    /// Returns a shelf with `loans` loans that are over.
    pub async fn with(loans: i64) -> Self {
        let shelf = Self::new().await;
        shelf.lend(1, loans).await;
        shelf
    }

    /// Inserts `loans` loans that are over, numbered from `first`.
    pub async fn lend(&self, first: i64, loans: i64) {
        let last = first + loans - 1;
        // Repeated after a deadlock: the workers return books meanwhile, in the order of their own plans.
        let text = format!(
            "insert into library.loans (id, book, ends_at)
             select n, n % 10, statement_timestamp() - interval '1 day' + n * interval '1 millisecond'
               from generate_series({first}, {last}) n;
             insert into library.books select n, 0 from generate_series(0, 9) n
                 on conflict do nothing;
             update library.books b set out_on_loan = out_on_loan + l.n
               from (select book, count(*) as n from library.loans
                      where id between {first} and {last} group by book) l
              where l.book = b.id"
        );
        for _ in 0..50 {
            match self.client.batch_execute(&text).await {
                Err(error) if error.code() == Some(&SqlState::T_R_DEADLOCK_DETECTED) => {}
                lent => return lent.expect("lent"),
            }
        }
        panic!("50 deadlocks in a row");
    }

    pub async fn count(&self, what: &str) -> i64 {
        count(&self.client, &format!("select count(*) from library.loans where {what}")).await
    }

    pub async fn sql(&self, text: &str) {
        sql(&self.client, text).await;
    }

    /// Asserts that every loan is back, each once, and every copy is on its shelf.
    pub async fn assert_all_back(&self, loans: i64) {
        assert_eq!(self.count("state = 'back'").await, loans, "every loan ends");
        assert_eq!(self.count("state <> 'back'").await, 0, "none is left");
        let out = count(&self.client, "select sum(out_on_loan) from library.books").await;
        assert_eq!(out, 0, "each loan gives back one copy");
        self.assert_each_finished_once().await;
    }

    /// Asserts that no loan came back twice, and that only the watchdog sent one out again.
    pub async fn assert_each_finished_once(&self) {
        let twice = "select count(*) from (select loan from library.trail where to_state = 'back'
                      group by loan having count(*) > 1) t";
        assert_eq!(count(&self.client, twice).await, 0, "a loan ends once");
        let odd = "select count(*) from library.trail
                    where (from_state, to_state) not in (('out', 'coming'), ('coming', 'back'))
                      and not ((from_state, to_state) = ('coming', 'out') and watchdog = 'loans.end')";
        assert_eq!(count(&self.client, odd).await, 0, "only the watchdog goes back");
    }

    /// Makes the claims older by `time`.
    pub async fn age_claims(&self, time: &str) {
        self.sql(&format!(
            "update library.loans set taken_at = taken_at - interval '{time}' where state = 'coming'"
        ))
        .await;
    }
}

/// Returns the sweep of the loans, in small batches.
pub fn loans() -> Sweep {
    Sweep::new("loans.end", "library.loans")
        .due("ends_at < statement_timestamp()")
        .order_by("ends_at")
        .status("state", States::new("out", "coming", "back"))
        .claimed_at("taken_at")
        .claim("taken_by")
        .claim_size(100)
        .backoff(Duration::from_millis(1), Duration::from_millis(1))
        .finishing(GIVE_BACK)
}
