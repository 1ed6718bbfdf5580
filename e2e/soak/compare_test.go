package soak

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/e2e/lab/labtest"
)

// compared waits until the gateway has compared every resource of every member
// with its cache once more. One that differs is fatal, also one of before.
func compared(t testing.TB, d *diary) {
	t.Helper()
	before := comparisons(t)
	labtest.Eventually(t, 5*time.Minute, func(context.Context) error {
		now := comparisons(t)
		for key, n := range now["equal"] {
			// Watches of Events have no bookmarks: where nothing happens, nothing
			// says that a feed has passed what was listed.
			if n == before["equal"][key] && !strings.Contains(key, `"events"`) {
				return fmt.Errorf("%s was not compared once more: %v", key, now)
			}
		}
		if len(now["equal"]) < len(names)*10 {
			return fmt.Errorf("only %d resources were compared", len(now["equal"]))
		}
		return nil
	})
	after := comparisons(t)
	for key, n := range after["different"] {
		if n > 0 {
			t.Errorf("%s was different %v times", key, n)
		}
	}
	d.note("cache and members are equal in %d comparisons", len(after["equal"]))
}

// comparisons are the gateway's counts by outcome and resource.
func comparisons(t testing.TB) map[string]map[string]float64 {
	t.Helper()
	out := map[string]map[string]float64{}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, world.metrics, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	for s := bufio.NewScanner(resp.Body); s.Scan(); {
		line, found := strings.CutPrefix(s.Text(), "isthmus_cache_comparisons_total{")
		if !found {
			continue
		}
		labels, number, _ := strings.Cut(line, "} ")
		n, err := strconv.ParseFloat(number, 64)
		if err != nil {
			t.Fatalf("metric %s: %v", line, err)
		}
		outcome := ""
		var key []string
		for label := range strings.SplitSeq(labels, ",") {
			if value, ok := strings.CutPrefix(label, "outcome="); ok {
				outcome = strings.Trim(value, `"`)
			} else {
				key = append(key, label)
			}
		}
		if out[outcome] == nil {
			out[outcome] = map[string]float64{}
		}
		out[outcome][strings.Join(key, ",")] = n
	}
	return out
}
