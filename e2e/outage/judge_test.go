package outage

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// view is what a store holds: the content of each Pod by UID.
type view map[types.UID]string

// content is what is compared of a Pod, as its own cluster has it.
func content(pod *corev1.Pod, name, node string) string {
	labels := maps.Clone(pod.Labels)
	delete(labels, clusterLabel)
	keys := slices.Sorted(maps.Keys(labels))
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s phase=%s node=%s deleting=%t", pod.Namespace, name, pod.Status.Phase, node, pod.DeletionTimestamp != nil)
	for _, k := range keys {
		fmt.Fprintf(&b, " %s=%s", k, labels[k])
	}
	return b.String()
}

func directView(store cache.Store) view {
	v := view{}
	for _, item := range store.List() {
		pod := item.(*corev1.Pod)
		v[pod.UID] = content(pod, pod.Name, pod.Spec.NodeName)
	}
	return v
}

// servedView divides the endpoint's Pods by their cluster, under the names that
// they have there.
func servedView(store cache.Store) map[string]view {
	out := map[string]view{}
	for _, item := range store.List() {
		pod := item.(*corev1.Pod)
		cluster := pod.Labels[clusterLabel]
		if out[cluster] == nil {
			out[cluster] = view{}
		}
		name := pod.Name
		if original := pod.Annotations["isthmus.dev/original-name"]; original != "" {
			name = original
		}
		out[cluster][pod.UID] = content(pod, name, strings.TrimSuffix(pod.Spec.NodeName, "."+cluster))
	}
	return out
}

// expectation of a member's Pods.
type expectation int

const (
	absent   expectation = iota // none may be served
	settling                    // differences are counted and not held against anybody
	live                        // equal, but for differences younger than the limit
)

// judge remembers since when Pods differ.
type judge struct {
	limit time.Duration

	mu       sync.Mutex
	expected map[string]expectation
	changed  map[string]int // times of set, so that a count of before does not speak for after
	since    map[string]map[types.UID]time.Time
	counts   map[string]count // by informer and member
	reported map[string]bool  // by informer and UID
	compared int              // comparisons
	pods     int              // that were compared in them
	passing  int              // differences seen, of any age
	oldest   time.Duration
}

type count struct{ differing, changed int }

func newJudge(limit time.Duration) *judge {
	return &judge{
		limit: limit, expected: map[string]expectation{}, changed: map[string]int{},
		since: map[string]map[types.UID]time.Time{}, counts: map[string]count{}, reported: map[string]bool{},
	}
}

func (j *judge) set(member string, e expectation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.expected[member] = e
	j.changed[member]++
	for key := range j.since {
		if strings.HasSuffix(key, " "+member) {
			delete(j.since, key) // ages are counted anew
		}
	}
}

// differing is the number of a member's Pods that differed in an informer at the
// last comparison and at the one before it, -1 when there was none since the
// last set. What churn changes at the moment of a comparison is not counted.
func (j *judge) differing(informer, member string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := j.counts[informer+" "+member]
	if !ok || c.changed != j.changed[member] {
		return -1
	}
	return c.differing
}

func (j *judge) summary() (comparisons, pods, passing int, oldest time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.compared, j.pods, j.passing, j.oldest
}

// compare tells of each difference that is older than the limit, once.
func (j *judge) compare(now time.Time, informer string, want, got map[string]view) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.compared++
	var problems []string
	for cluster := range got {
		if _, known := want[cluster]; !known {
			problems = append(problems, fmt.Sprintf("Pods of an unknown cluster %q are served", cluster))
		}
	}
	for member, expected := range j.expected {
		key := informer + " " + member
		wanted := want[member]
		if expected == absent {
			wanted = nil
		}
		differ := differences(wanted, got[member])
		j.pods += len(wanted)
		j.passing += len(differ)
		before, again := j.since[key]
		ages := map[types.UID]time.Time{}
		j.since[key] = ages
		lasting := 0
		for uid, text := range differ {
			ages[uid] = now
			if first, ok := before[uid]; ok {
				ages[uid] = first
				lasting++
			}
			if expected == settling {
				continue
			}
			age := now.Sub(ages[uid])
			j.oldest = max(j.oldest, age)
			if age > j.limit && !j.reported[informer+" "+string(uid)] {
				j.reported[informer+" "+string(uid)] = true
				problems = append(problems, fmt.Sprintf("%s for %s: %s", member, age, text))
			}
		}
		if again {
			j.counts[key] = count{lasting, j.changed[member]}
		}
	}
	return problems
}

// differences between what a member holds and what is served of it.
func differences(want, got view) map[types.UID]string {
	out := map[types.UID]string{}
	for uid, text := range want {
		if other, ok := got[uid]; !ok {
			out[uid] = "missing " + text
		} else if other != text {
			out[uid] = fmt.Sprintf("served %q, held %q", other, text)
		}
	}
	for uid, text := range got {
		if _, ok := want[uid]; !ok {
			out[uid] = "served though gone: " + text
		}
	}
	return out
}

// The judge itself: what it must see, and when.
func TestJudge(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	held := map[string]view{"m1": {"u1": "a", "u2": "b"}}
	for name, tc := range map[string]struct {
		got      map[string]view
		expected expectation
		problems int
	}{
		"equal":                   {map[string]view{"m1": {"u1": "a", "u2": "b"}}, live, 0},
		"content":                 {map[string]view{"m1": {"u1": "x", "u2": "b"}}, live, 1},
		"missing":                 {map[string]view{"m1": {"u1": "a"}}, live, 1},
		"all missing":             {nil, live, 2},
		"gone":                    {map[string]view{"m1": {"u1": "a", "u2": "b", "u3": "c"}}, live, 1},
		"settling":                {nil, settling, 0},
		"absent and served":       {map[string]view{"m1": {"u1": "a"}}, absent, 1},
		"absent":                  {nil, absent, 0},
		"served by another":       {map[string]view{"m1": {"u1": "a", "u2": "b"}, "m9": {"u9": "z"}}, live, 5},
		"another UID, equal name": {map[string]view{"m1": {"u1": "a", "u4": "b"}}, live, 2},
	} {
		j := newJudge(3 * time.Second)
		j.set("m1", tc.expected)
		problems := 0
		for s := range 5 {
			problems += len(j.compare(at(s), "i", held, tc.got))
		}
		if problems != tc.problems {
			t.Errorf("%s: %d problems, want %d", name, problems, tc.problems)
		}
	}
	settle := newJudge(3 * time.Second)
	settle.set("m1", settling)
	for s, want := range []int{-1, 2, 2} {
		settle.compare(at(s), "i", held, nil)
		if got := settle.differing("i", "m1"); got != want {
			t.Errorf("comparison %d: %d differ, want %d", s, got, want)
		}
	}
	j := newJudge(3 * time.Second)
	j.set("m1", live)
	for s := range 20 { // a difference that ends within the limit, again and again
		got := held
		if s%4 != 0 {
			got = nil
		}
		if problems := j.compare(at(s), "i", held, got); len(problems) > 0 {
			t.Errorf("second %d: %v", s, problems)
		}
	}
}
