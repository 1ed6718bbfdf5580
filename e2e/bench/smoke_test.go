package bench

import (
	"strings"
	"testing"
	"time"
)

// The whole run, small: every figure is there and every answer was complete.
func TestSmoke(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three real clusters and the product")
	}
	result, err := Run(t.Context(), Options{
		Dir: t.TempDir(), Pods: 500, Rounds: 1, Settle: time.Second, ChurnSeconds: 3, Events: 200, Logf: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range result.Lists {
		if row.Reference.Total() <= 0 || row.Product.Total() <= 0 || row.Product.Pods == 0 || row.Product.Bytes == 0 {
			t.Errorf("%s: %+v", row.Form, row)
		}
	}
	if len(result.Lists) != len(forms()) || len(result.Memory) == 0 || len(result.Fills) != 1 || len(result.Latency) != 2 || len(result.FanOut) != 2 {
		t.Errorf("figures are missing: %+v", result)
	}
	for _, l := range result.Latency {
		if l.P99 < l.P50 || l.P99 > 10*time.Second {
			t.Errorf("latency %+v", l)
		}
	}
	var out strings.Builder
	if err := result.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	t.Log(out.String())
}
