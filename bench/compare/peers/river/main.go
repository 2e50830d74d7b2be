// River.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

const (
	effect     = "insert into public.effect (n) values ($1)"
	maxWorkers = 2000
	// The most that one InsertManyFast takes well: COPY has no limit of parameters.
	bulkSize  = 5000
	feedSize  = 1000
	mostWaits = 5000
	warmUp    = 10
)

// work is what a job carries. Its kind is a value, because a test has many names.
type work struct {
	N      int64  `json:"n"`
	Filler string `json:"filler,omitempty"`
	kind   string
}

func (w work) Kind() string {
	if w.kind == "" {
		return "job_0"
	}
	return w.kind
}

type worker struct {
	river.WorkerDefaults[work]
	options *options
	ledger  *ledger
	pool    *pgxpool.Pool
}

func (w *worker) Work(ctx context.Context, job *river.Job[work]) error {
	w.ledger.started(job.Args.N)
	if !w.options.row {
		return nil
	}
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, effect, job.Args.N); err != nil {
		return err
	}
	if _, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

type peer struct {
	options *options
	ledger  *ledger
	pool    *pgxpool.Pool
	client  *river.Client[pgx.Tx]
}

func quiet() *slog.Logger {
	return slog.New(slog.NewTextHandler(io.Discard, nil))
}

func open(ctx context.Context, o *options, l *ledger) (*peer, error) {
	config, err := pgxpool.ParseConfig(o.database)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(o.connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	p := &peer{options: o, ledger: l, pool: pool}
	workers := river.NewWorkers()
	for name := int64(0); name < o.names; name++ {
		args := work{kind: fmt.Sprintf("job_%d", name)}
		river.AddWorkerArgs(workers, args, &worker{options: o, ledger: l, pool: pool})
	}
	p.client, err = river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Logger:            quiet(),
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: maxWorkers}},
		Workers:           workers,
	})
	return p, err
}

func setup(ctx context.Context, o *options) error {
	pool, err := pgxpool.New(ctx, o.database)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: quiet()})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func (p *peer) args(n int64) work {
	return work{N: n, Filler: p.options.filler, kind: fmt.Sprintf("job_%d", n%p.options.names)}
}

func (p *peer) bulk(ctx context.Context, first, end int64) error {
	params := make([]river.InsertManyParams, 0, end-first)
	for n := first; n < end; n++ {
		// It has four priorities, from 1.
		priority := int(n/p.options.names%p.options.priorities)%4 + 1
		params = append(params, river.InsertManyParams{Args: p.args(n), InsertOpts: &river.InsertOpts{Priority: priority}})
	}
	_, err := p.client.InsertManyFast(ctx, params)
	return err
}

func (p *peer) single(ctx context.Context, n int64) error {
	switch p.options.how {
	case "plain":
		_, err := p.client.Insert(ctx, p.args(n), nil)
		return err
	case "transaction":
		return p.transaction(ctx, n, func() {})
	default:
		_, err := p.client.Insert(ctx, p.args(n), &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}})
		return err
	}
}

func (p *peer) transaction(ctx context.Context, n int64, before func()) error {
	tx, err := p.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, effect, n); err != nil {
		return err
	}
	if _, err := p.client.InsertTx(ctx, tx, p.args(n), nil); err != nil {
		return err
	}
	before()
	return tx.Commit(ctx)
}

func (p *peer) feed(ctx context.Context) error {
	for first := int64(0); first < p.options.jobs; first += feedSize {
		for first-p.ledger.ran.Load() > mostWaits-feedSize {
			time.Sleep(time.Millisecond)
		}
		if err := p.bulk(ctx, first, min(first+feedSize, p.options.jobs)); err != nil {
			return err
		}
	}
	return nil
}

func (p *peer) work(ctx context.Context) error {
	if err := p.client.Start(ctx); err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(closed)
	}()
	if p.options.feed {
		go func() {
			if err := p.feed(ctx); err != nil {
				show(map[string]any{"error": err.Error()})
			}
		}()
	}
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for shown := int64(0); ; {
		select {
		case <-ticker.C:
			if ran := p.ledger.ran.Load(); ran != shown {
				shown = ran
				show(map[string]any{"ran": ran})
			}
			continue
		case <-closed:
		}
		break
	}
	if err := os.WriteFile(p.options.ledger, p.ledger.counts(), 0o600); err != nil {
		return err
	}
	show(p.ledger.result())
	stopping, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	return p.client.StopAndCancel(stopping)
}

func (p *peer) latency(ctx context.Context) error {
	if err := p.client.Start(ctx); err != nil {
		return err
	}
	time.Sleep(time.Second)
	total := warmUp + p.options.jobs
	before := make([]float64, total)
	for n := int64(0); n < total; n++ {
		if err := p.transaction(ctx, n, func() { before[n] = now() }); err != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	for i := 0; i < 500 && p.ledger.ran.Load() < total; i++ {
		time.Sleep(20 * time.Millisecond)
	}
	waits := []float64{}
	for n := int64(warmUp); n < total; n++ {
		if start := p.ledger.start(n); start > 0 {
			waits = append(waits, (start-before[n])*1000)
		}
	}
	if err := os.WriteFile(p.options.ledger, p.ledger.counts(), 0o600); err != nil {
		return err
	}
	show(map[string]any{"done": true, "latency_ms": waits})
	stopping, cancel := context.WithTimeout(ctx, 8*time.Second)
	defer cancel()
	return p.client.StopAndCancel(stopping)
}

func run(ctx context.Context) error {
	o, err := read()
	if err != nil {
		return err
	}
	if o.command == "setup" {
		if err := setup(ctx, o); err != nil {
			return err
		}
		show(map[string]any{"done": true})
		return nil
	}
	jobs := o.jobs
	if o.command == "latency" {
		jobs += warmUp
	}
	p, err := open(ctx, o, newLedger(jobs))
	if err != nil {
		return err
	}
	started := now()
	switch o.command {
	case "enqueue":
		for first := int64(0); first < o.jobs; first += bulkSize {
			if err := p.bulk(ctx, first, min(first+bulkSize, o.jobs)); err != nil {
				return err
			}
		}
	case "single":
		for n := int64(0); n < o.jobs; n++ {
			if err := p.single(ctx, n); err != nil {
				return err
			}
		}
	case "work":
		return p.work(ctx)
	case "latency":
		return p.latency(ctx)
	default:
		return fmt.Errorf("unknown command: %s; use setup, enqueue, single, work or latency", o.command)
	}
	show(map[string]any{"done": true, "seconds": now() - started})
	return nil
}

func show(message map[string]any) {
	text, err := json.Marshal(message)
	if err == nil {
		fmt.Println(string(text))
	}
}

func main() {
	if err := run(context.Background()); err != nil {
		show(map[string]any{"error": err.Error()})
		os.Exit(1)
	}
}
