package quota

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"
)

func pods(n int64) corev1.ResourceList {
	return corev1.ResourceList{"pods": *resource.NewQuantity(n, resource.DecimalSI)}
}

// fleet plays members that do what they are told some time later, and are seen
// some time after that.
type fleet struct {
	hard   int64
	state  State
	target Shares
	allows map[string]Seen // in the member
	seen   map[string]Seen // of the member
	worst  int64           // what may be allowed before the present limit acts
}

func (f *fleet) names() []string { return slices.Sorted(maps.Keys(f.state)) }

func (f *fleet) allowed() (sum int64) {
	for _, s := range f.allows {
		sum += count(s.Hard)
	}
	return sum
}

// However late members do and show what they are told, never do they all
// together allow more than the limit; and in the end everybody has its share.
func TestNeverMoreThanTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &fleet{hard: 20, state: State{}, target: Shares{}, allows: map[string]Seen{}, seen: map[string]Seen{}}
		f.worst = f.hard
		pick := func(t *rapid.T) string {
			if len(f.state) == 0 {
				t.Skip("no cluster")
			}
			return rapid.SampledFrom(f.names()).Draw(t, "cluster")
		}
		plan := func(clusters []string, t *rapid.T) {
			f.target = Shares{}
			left := f.hard
			for i, c := range clusters {
				n := left
				if i < len(clusters)-1 {
					n = rapid.Int64Range(0, left).Draw(t, "share")
				}
				f.target[c] = pods(n)
				left -= n
			}
		}
		next := func(*rapid.T) {
			f.state = f.state.Next(pods(f.hard), f.target, f.seen)
			// A restart knows what is on record, and that alone.
			raw, err := json.Marshal(f.state)
			if err != nil {
				t.Fatal(err)
			}
			f.state = State{}
			if err := json.Unmarshal(raw, &f.state); err != nil {
				t.Fatal(err)
			}
		}
		write := func(cluster string) {
			p := f.state[cluster]
			if p.Told == nil {
				delete(f.allows, cluster)
				return
			}
			f.allows[cluster] = Seen{Hard: p.Told, Step: p.Step}
		}
		look := func(cluster string) {
			s, ok := f.allows[cluster]
			if !ok {
				s.Gone = f.state[cluster].Told == nil
			}
			f.seen[cluster] = s
		}
		t.Repeat(map[string]func(*rapid.T){
			"target": func(t *rapid.T) {
				var in []string
				for i := range 4 {
					if rapid.IntRange(0, 3).Draw(t, "in") > 0 {
						in = append(in, fmt.Sprint("m", i))
					}
				}
				plan(in, t)
			},
			"less": func(t *rapid.T) {
				f.worst = max(f.allowed(), f.worst)
				f.hard = max(f.hard-rapid.Int64Range(0, 3).Draw(t, "less"), 0)
				plan(slices.Sorted(maps.Keys(f.target)), t)
			},
			"next":  next,
			"write": func(t *rapid.T) { write(pick(t)) },
			"look":  func(t *rapid.T) { look(pick(t)) },
			"": func(t *rapid.T) {
				if sum := f.allowed(); sum > f.worst {
					t.Fatalf("%d are allowed, of %d: %v", sum, f.worst, f.allows)
				}
			},
		})
		for range 6 {
			next(t)
			for _, c := range f.names() {
				write(c)
				look(c)
			}
		}
		for cluster, want := range f.target {
			if got := f.allows[cluster].Hard; count(got) != count(want) {
				t.Fatalf("%s is to have %v and has %v", cluster, count(want), count(got))
			}
		}
	})
}
