package settle

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/proxy"
)

// slow has everything after a while.
type slow struct{ from time.Time }

func (s slow) InPlace(gk schema.GroupKind, _, _ string, uid types.UID) bool {
	return gk.Kind == "LimitRange" && uid == "1" && time.Now().After(s.from)
}

func TestInPlaceWaits(t *testing.T) {
	limitRange := schema.GroupKind{Kind: "LimitRange"}
	for name, c := range map[string]struct {
		after, min, max time.Duration
		leads           bool
	}{
		"there already":     {leads: true},
		"soon":              {leads: true, after: 300 * time.Millisecond, min: 300 * time.Millisecond, max: 500 * time.Millisecond},
		"never":             {leads: true, after: time.Hour, min: 2 * time.Second, max: 2 * time.Second},
		"nobody leads here": {after: time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(nil)
			if c.leads {
				s.Lead(slow{time.Now().Add(c.after - 1)}) // strictly after
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			start := time.Now()
			s.InPlace(ctx, limitRange, proxy.Ref{Namespace: "a", Name: "x", UID: "1"})
			if took := time.Since(start); took < c.min || took > c.max+time.Millisecond {
				t.Errorf("%s: waited %s", name, took)
			}
		})
	}
}
