package main

import (
	"flag"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// options is what the runner asked for.
type options struct {
	command     string
	database    string
	jobs        int64
	connections int
	names       int64
	priorities  int64
	ledger      string
	row         bool
	how         string
	feed        bool
	filler      string
}

func read() (*options, error) {
	o := &options{}
	if len(os.Args) > 1 {
		o.command = os.Args[1]
	}
	flags := flag.NewFlagSet("driver", flag.ContinueOnError)
	flags.StringVar(&o.database, "database", "", "address of the database")
	flags.Int64Var(&o.jobs, "jobs", 1000, "how many jobs")
	flags.IntVar(&o.connections, "connections", 20, "the most connections")
	flags.Int64Var(&o.names, "names", 1, "how many names")
	flags.Int64Var(&o.priorities, "priorities", 1, "how many priorities")
	flags.StringVar(&o.ledger, "ledger", "", "where to write which jobs ran")
	flags.StringVar(&o.how, "how", "plain", "plain, key or transaction")
	size := flags.Int("bytes", 0, "bytes of text in each job")
	handler := flags.String("handler", "noop", "noop or row")
	feed := flags.String("feed", "", "1: store the jobs while they are drained")
	_ = flags.Int64("keys", 0, "how many keys: it has no limit per key")
	_ = flags.String("history", "", "it always keeps finished jobs")
	if err := flags.Parse(os.Args[min(2, len(os.Args)):]); err != nil {
		return nil, err
	}
	o.row, o.feed, o.filler = *handler == "row", *feed == "1", text(*size)
	return o, nil
}

// text returns incompressible text, the same in every driver.
func text(size int) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	var made strings.Builder
	x := uint64(1)
	for range size {
		x = (x*1103515245 + 12345) % 2147483648
		made.WriteByte(letters[(x>>16)%62])
	}
	return made.String()
}

// now returns seconds since 1970: the runner compares them with its own clock.
func now() float64 {
	return float64(time.Now().UnixMicro()) / 1e6
}

// ledger records which jobs ran, how often, and when.
type ledger struct {
	jobs   int64
	runs   []atomic.Int32
	starts []atomic.Int64
	ran    atomic.Int64
	lock   sync.Mutex
	first  float64
	marks  [][2]float64
}

func newLedger(jobs int64) *ledger {
	return &ledger{jobs: jobs, runs: make([]atomic.Int32, jobs), starts: make([]atomic.Int64, jobs)}
}

func (l *ledger) started(n int64) {
	ran := l.ran.Add(1)
	l.runs[n].Add(1)
	at := time.Now().UnixMicro()
	l.starts[n].Store(at)
	if step := max(l.jobs/20, 1); ran == 1 || ran%step == 0 {
		l.lock.Lock()
		if ran == 1 {
			l.first = float64(at) / 1e6
		}
		if ran%step == 0 {
			l.marks = append(l.marks, [2]float64{float64(ran), float64(at) / 1e6})
		}
		l.lock.Unlock()
	}
	if ran == l.jobs {
		show(map[string]any{"ran": ran})
	}
}

func (l *ledger) start(n int64) float64 {
	return float64(l.starts[n].Load()) / 1e6
}

func (l *ledger) counts() []byte {
	counts := make([]byte, l.jobs)
	for n := range counts {
		counts[n] = byte(min(l.runs[n].Load(), 255))
	}
	return counts
}

func (l *ledger) result() map[string]any {
	l.lock.Lock()
	defer l.lock.Unlock()
	return map[string]any{"done": true, "ran": l.ran.Load(), "first": l.first, "marks": l.marks}
}
