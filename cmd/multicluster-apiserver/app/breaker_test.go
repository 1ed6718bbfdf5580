package app

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/isthmus-dev/isthmus/pkg/federation/breaker"
	"github.com/isthmus-dev/isthmus/pkg/federation/engine"
)

func TestBreakerFlags(t *testing.T) {
	for args, good := range map[string]bool{
		"":                                true,
		"--breaker-replicas-floor=100":    true,
		"--breaker-window=0s":             false,
		"--breaker-asked-factor=0":        false,
		"--breaker-replicas-percent=-1":   false,
		"--breaker-objects-floor=-1":      false,
		"--breaker-cluster-percent=-1":    false,
		"--breaker-small-fleet=-1":        false,
		"--breaker-window=1h":             true,
		"--breaker-replicas-percent=100":  true,
		"--breaker-objects-percent=99999": true,
	} {
		l := breaker.DefaultLimits()
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		addBreakerFlags(fs, &l)
		if err := fs.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		got, err := completeBreaker(l)
		if (err == nil) != good {
			t.Errorf("%q: %v", args, err)
		}
		if args == "--breaker-replicas-floor=100" && (got.ClusterReplicas.Floor != 100 || got.FleetReplicas.Floor != 100) {
			t.Errorf("the floor is %+v", got)
		}
	}
	if got, err := completeBreaker(breaker.DefaultLimits()); err != nil || got != breaker.DefaultLimits() {
		t.Errorf("without flags: %+v, %v", got, err)
	}
}

func TestDescribeBreaker(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for id, want := range map[string][]string{
		"derived":        {"derived: stopped since", "policies", "breaker approve derived", "take the change back", "waiting: 50 replicas, 5 objects in 7 removals, in m1, m2", "and 2 more"},
		"asked@m1":       {"breaker reject asked@m1", "deleted or scaled down"},
		"namespace/shop": {"would take along 3 replicas, 4 objects", "breaker reject namespace/shop", "breaker approve namespace/shop"},
	} {
		got := describeBreaker([]engine.BreakerStatus{{
			Trip:    breaker.Trip{ID: id, Since: at, Done: breaker.Amount{Replicas: 3, Objects: 4}},
			Waiting: breaker.Amount{Replicas: 50, Objects: 5}, Removals: 7, Clusters: []string{"m1", "m2"}, Examples: []string{"a", "b", "c", "d", "e", "f"},
		}})
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s:\n%s\nwant %q", id, got, w)
			}
		}
	}
	if got := describeBreaker(nil); !strings.Contains(got, "Nothing is stopped") {
		t.Errorf("without trips: %s", got)
	}
}
