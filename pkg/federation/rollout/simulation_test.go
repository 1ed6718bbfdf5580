package rollout

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// site plays one cluster: a deployment controller that goes as far as it may,
// in any order, and whose status is seen late.
type site struct {
	name     string
	exists   bool
	target   int32
	replicas int32 // spec
	version  int   // spec
	strategy Budget
	// Pods: version -> available and not.
	up, down map[int]int32
	// what was last reported
	seen struct{ up, updated, total, version int32 }
	// since the report
	least   int32
	worst   Budget
	content bool // a template was written
}

func sum(m map[int]int32) (n int32) {
	for _, v := range m {
		n += v
	}
	return n
}

// step makes one allowed move; which says which kind is tried first.
func (s *site) step(which int) bool {
	moves := []func() bool{s.bringUp, s.create, s.retire, s.trim}
	for i := range moves {
		if moves[(which+i)%len(moves)]() {
			return true
		}
	}
	return false
}

func (s *site) bringUp() bool {
	for v, n := range s.down {
		if n > 0 {
			s.down[v]--
			s.up[v]++
			return true
		}
	}
	return false
}

func (s *site) create() bool {
	total := sum(s.up) + sum(s.down)
	limit := s.replicas
	if old := total - s.up[s.version] - s.down[s.version]; old > 0 {
		limit += s.strategy.Surge
	}
	if total >= limit || s.up[s.version]+s.down[s.version] >= s.replicas {
		return false
	}
	s.down[s.version]++
	return true
}

// retire takes down a Pod of an old version, as far as the strategy allows.
func (s *site) retire() bool {
	for v := range s.down {
		if v != s.version && s.down[v] > 0 {
			s.down[v]--
			return true
		}
	}
	for v := range s.up {
		if v != s.version && s.up[v] > 0 && sum(s.up) > s.replicas-s.strategy.Unavailable {
			s.up[v]--
			return true
		}
	}
	return false
}

// trim removes what is beyond the replicas, what is not available first.
func (s *site) trim() bool {
	limit := s.replicas
	if sum(s.up)+sum(s.down)-s.up[s.version]-s.down[s.version] > 0 {
		limit += s.strategy.Surge
	}
	if sum(s.up)+sum(s.down) <= limit {
		return false
	}
	for _, pods := range []map[int]int32{s.down, s.up} {
		for v, n := range pods {
			if n > 0 {
				pods[v]--
				return true
			}
		}
	}
	return false
}

func (s *site) report() {
	s.content = false
	s.least, s.worst = s.replicas, s.strategy
	s.seen.up, s.seen.total = sum(s.up), sum(s.up)+sum(s.down)
	s.seen.updated = s.up[s.version] + s.down[s.version]
}

func (s *site) rolling() bool {
	return s.content || s.seen.updated != s.seen.total
}

type world struct {
	w       Workload
	version int
	sites   []*site
	log     func(string, ...any)
}

func (w *world) plan() {
	targets := map[string]int32{}
	for _, s := range w.sites {
		targets[s.name] = s.target
	}
	shares := Split(w.w.Budget, targets, "u")
	var in []Cluster
	for _, s := range w.sites {
		in = append(in, Cluster{
			Name: s.name, Exists: s.exists, Target: s.target, Present: s.replicas, Outdated: s.exists && s.version != w.version,
			Rolling: s.exists && s.rolling(), Available: s.seen.up, InForce: s.worst, Least: s.least, Next: shares[s.name],
		})
	}
	if w.log != nil {
		w.log("plan %+v", in)
		w.log("  -> %+v", Plan(w.w, in))
	}
	for i, g := range Plan(w.w, in) {
		for _, s := range w.sites {
			if s.name != i {
				continue
			}
			roll := g.Template && (s.version != w.version || !s.exists)
			s.exists, s.replicas = true, g.Replicas
			if roll {
				s.version, s.strategy, s.content = w.version, shares[s.name], true
			}
			s.least = min(s.least, s.replicas)
			s.worst = Budget{max(s.worst.Surge, s.strategy.Surge), max(s.worst.Unavailable, s.strategy.Unavailable)}
		}
	}
}

func (w *world) done() bool {
	for _, s := range w.sites {
		if s.version != w.version || s.replicas != s.target || sum(s.up) != s.target || s.up[s.version] != s.target || sum(s.down) > 0 || s.rolling() {
			return false
		}
	}
	return true
}

func (w *world) available() (n int32) {
	for _, s := range w.sites {
		n += sum(s.up)
	}
	return n
}

func (w *world) String() string {
	var out string
	for _, s := range w.sites {
		out += fmt.Sprintf("%s: target %d replicas %d v%d up %v down %v seen %+v; ", s.name, s.target, s.replicas, s.version, s.up, s.down, s.seen)
	}
	return out
}

// Rollouts and moves at the same time, however the clusters' controllers
// behave within their strategy and however late they report: what is available
// over all never falls under the replicas less maxUnavailable, and all end.
func TestAvailabilityIsKept(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "clusters")
		w := &world{version: 1}
		var total int32
		for i := range n {
			r := rapid.Int32Range(0, 6).Draw(t, "replicas")
			total += r
			s := &site{
				name: string(rune('a' + i)), exists: true, target: r, replicas: r, version: 1,
				strategy: Budget{1, 0}, up: map[int]int32{1: r}, down: map[int]int32{},
			}
			s.report()
			w.sites = append(w.sites, s)
		}
		w.w.Desired = total
		w.log = t.Logf
		w.w.Budget = Budget{rapid.Int32Range(0, 4).Draw(t, "surge"), rapid.Int32Range(0, 4).Draw(t, "unavailable")}
		if w.w.Budget == (Budget{}) {
			w.w.Budget.Unavailable = 1
		}
		check := func() {
			if got := w.available(); got < total-w.w.Budget.Unavailable {
				t.Fatalf("%d of %d available, at most %d may be missing: %s", got, total, w.w.Budget.Unavailable, w)
			}
		}
		act := func(kind, which int) {
			s := w.sites[which%n]
			switch kind {
			case 0, 1, 2, 3:
				s.step(kind)
			case 4:
				s.report()
			case 5:
				w.plan()
			case 6: // a new template
				w.version++
			case 7: // a move of one replica, or of all
				to := w.sites[(which/n)%n]
				k := min(s.target, int32(which%3+1))
				s.target -= k
				to.target += k
			}
			w.log("%d %d: %s", kind, which, w)
			check()
		}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			act(rapid.IntRange(0, 7).Draw(t, "kind"), rapid.IntRange(0, 99).Draw(t, "which"))
		}
		for i := 0; !w.done(); i++ {
			if i > 3000 {
				t.Fatalf("it does not end: budget %+v, %s", w.w.Budget, w)
			}
			act(i%6, i/6)
		}
	})
}
