package names

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// world carries out the moves of a table, as a collection does.
type world struct {
	t      *testing.T
	table  *Table
	served map[cache.Key]Holder
	now    time.Time
	order  map[cache.ClusterName]int
}

func (w *world) At(key cache.Key) (Holder, bool) { h, ok := w.served[key]; return h, ok }

func newWorld(t *testing.T) *world {
	w := &world{t: t, served: map[cache.Key]Holder{}, now: time.Unix(0, 0), order: map[cache.ClusterName]int{"m1": 1, "m2": 2, "m3": 3}}
	w.table = New(w, func(c cache.ClusterName) int { return w.order[c] }, Keep)
	return w
}

func key(name string) cache.Key { return cache.Key{Namespace: "d", Name: name} }

func holder(s string) Holder {
	cluster, name, _ := strings.Cut(s, "/")
	return Holder{Cluster: cache.ClusterName(cluster), Source: key(name)}
}

func (w *world) do(moves []Move) {
	w.t.Helper()
	for _, m := range moves {
		if m.From != (cache.Key{}) {
			if w.served[m.From] != m.Holder {
				w.t.Fatalf("move %v: %s is %v", m, m.From, w.served[m.From])
			}
			delete(w.served, m.From)
		}
		if m.To != (cache.Key{}) {
			if other, ok := w.served[m.To]; ok {
				w.t.Fatalf("move %v: %s is taken by %v", m, m.To, other)
			}
			w.served[m.To] = m.Holder
		}
	}
}

// step is "+m1/x" added, "-m1/x" removed, "r m1/x" reserved, "R m1/x" released,
// "t" the end of all reservations.
func (w *world) step(s string) {
	w.t.Helper()
	switch s[0] {
	case '+':
		w.do(w.table.Add(holder(s[1:]), w.now))
	case '-':
		w.do(w.table.Remove(holder(s[1:]), w.now))
	case 'r':
		h := holder(s[2:])
		if !w.table.Reserve(h.Source, h.Cluster, w.now) {
			w.t.Fatalf("%s: held", s)
		}
	case 'n':
		h := holder(s[2:])
		if w.table.Reserve(h.Source, h.Cluster, w.now) {
			w.t.Fatalf("%s: not held", s)
		}
	case 'R':
		h := holder(s[2:])
		w.do(w.table.Release(h.Source, h.Cluster, w.now))
	case 't':
		w.now = w.now.Add(Keep)
		w.do(w.table.Expire(w.now))
	case 'f':
		w.do(w.table.Forget(cache.ClusterName(s[2:]), w.now))
	}
}

func TestRules(t *testing.T) {
	long := strings.Repeat("l", 251)
	cases := map[string]struct{ steps, want string }{
		"alone":                            {"+m2/x", "x=m2/x"},
		"first in order has the bare name": {"+m1/x +m2/x +m3/x", "x=m1/x x.m2=m2/x x.m3=m3/x"},
		"an earlier one takes over":        {"+m2/x +m1/x", "x=m1/x x.m2=m2/x"},
		"the control plane before all":     {"+m1/x +/x", "x=/x x.m1=m1/x"},
		"kept after a deletion":            {"+m1/x +m2/x -m1/x", "x.m2=m2/x"},
		"passed on afterwards":             {"+m1/x +m2/x -m1/x t", "x=m2/x"},
		"recreated while kept":             {"+m1/x +m2/x -m1/x +m1/x", "x=m1/x x.m2=m2/x"},
		"elsewhere while kept":             {"+m2/x -m2/x +m1/x", "x.m1=m1/x"},
		"elsewhere and back while kept":    {"+m2/x -m2/x +m1/x +m2/x", "x.m1=m1/x x=m2/x"},
		"then by order":                    {"+m2/x -m2/x +m1/x +m2/x t", "x=m1/x x.m2=m2/x"},
		"an alias goes":                    {"+m1/x +m2/x -m2/x", "x=m1/x"},
		"genuine name wins":                {"+m1/x +m2/x +m3/x.m2", "x=m1/x x-*.m2=m2/x x.m2=m3/x.m2"},
		"genuine name was first":           {"+m3/x.m2 +m1/x +m2/x", "x=m1/x x-*.m2=m2/x x.m2=m3/x.m2"},
		"long names are hashed":            {"+m1/" + long + " +m2/" + long, long + "=m1/" + long + " " + long[:233] + "-*.m2=m2/" + long},
		"reserved for a creation":          {"r m2/x +m1/x", "x.m1=m1/x"},
		"created where it was reserved":    {"r m2/x +m2/x R m2/x", "x=m2/x"},
		"released in vain":                 {"r m2/x +m1/x R m2/x", "x=m1/x"},
		"held by another":                  {"+m1/x n m2/x", "x=m1/x"},
		"held by another's creation":       {"r m1/x n m2/x R m1/x", ""},
		"held by another behind the kept":  {"+m1/x +m2/x -m1/x n m1/x", "x.m2=m2/x"},
		"created anew elsewhere":           {"+m1/x -m1/x r m2/x +m2/x R m2/x", "x=m2/x"},
		"a cluster leaves":                 {"+m1/x +m2/x -m1/x f m1", "x=m2/x"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for s := range splitSteps(tc.steps) {
				w.step(s)
			}
			want := map[string]string{}
			for f := range strings.FieldsSeq(tc.want) {
				k, v, _ := strings.Cut(f, "=")
				want[k] = v
			}
			got := map[string]string{}
			for k, h := range w.served {
				got[hideHash(k.Name)] = string(h.Cluster) + "/" + h.Source.Name
				if at := w.table.Where(h, w.now); at != k {
					t.Errorf("Where(%v) = %s, served as %s", h, at, k)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("served %v, want %v", got, want)
			}
		})
	}
}

// splitSteps yields the steps; a letter is followed by its argument.
func splitSteps(s string) func(func(string) bool) {
	words := strings.Fields(s)
	return func(yield func(string) bool) {
		for i := 0; i < len(words); i++ {
			step := words[i]
			if len(step) == 1 && step != "t" {
				i++
				step += " " + words[i]
			}
			if !yield(step) {
				return
			}
		}
	}
}

// hideHash writes x-0123456789abcdef.m2 as x-*.m2.
func hideHash(name string) string {
	i, j := strings.LastIndex(name, "-"), strings.LastIndex(name, ".")
	if i < 0 || j-i != 17 {
		return name
	}
	return name[:i] + "-*" + name[j:]
}

func TestTableForgets(t *testing.T) {
	w := newWorld(t)
	for _, s := range []string{"+m1/x", "+m2/x", "+m1/y", "-m1/x", "-m2/x", "-m1/y", "r m1/z", "R m1/z", "t"} {
		w.step(s)
	}
	if len(w.table.contests)+len(w.table.aliases) != 0 {
		t.Errorf("left over: %v %v", slices.Collect(maps.Keys(w.table.contests)), w.table.aliases)
	}
}
