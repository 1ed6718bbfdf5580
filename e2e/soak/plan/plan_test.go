package plan

import (
	"reflect"
	"testing"
	"time"
)

func TestDeal(t *testing.T) {
	deck := []Fault{
		{"freeze", []string{"m1", "m2"}, 5 * time.Second, 9 * time.Second},
		{"kill", []string{"m1"}, time.Second, time.Second},
		{"cut", []string{"m2"}, 20 * time.Second, 30 * time.Second},
	}
	differ := false
	for seed := range uint64(50) {
		for _, duration := range []time.Duration{time.Second, 5 * time.Minute} {
			steps := Deal(seed, deck, 4*time.Second, duration)
			if !reflect.DeepEqual(steps, Deal(seed, deck, 4*time.Second, duration)) {
				t.Fatalf("seed %d gives two plans", seed)
			}
			differ = differ || !reflect.DeepEqual(steps, Deal(seed+1, deck, 4*time.Second, duration))
			kinds, ends := map[string]int{}, map[string]time.Duration{}
			for i, s := range steps {
				kinds[s.Kind]++
				if s.At < ends[s.Target] {
					t.Errorf("seed %d: %s while another lasts until %s", seed, s, ends[s.Target])
				}
				ends[s.Target] = s.End()
				if i > 0 && s.At < steps[i-1].At {
					t.Errorf("seed %d: %s comes before %s", seed, s, steps[i-1])
				}
			}
			if len(kinds) != len(deck) {
				t.Errorf("seed %d: %v lacks a fault", seed, kinds)
			}
			if short := duration < time.Minute; short && len(steps) != len(deck) || !short && len(steps) < 10 {
				t.Errorf("seed %d: %d steps in %s", seed, len(steps), duration)
			}
		}
	}
	if !differ {
		t.Error("all seeds give one plan")
	}
}
