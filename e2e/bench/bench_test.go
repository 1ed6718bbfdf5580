package bench

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestParseCPU(t *testing.T) {
	const line = "4711 (a (odd) name) S 1 4711 4711 0 -1 4194560 1 2 3 4 150 25 7 8 20 0 9 0 100 200 300"
	got, err := parseCPU(line)
	if err != nil || got != 1750*time.Millisecond {
		t.Fatalf("got %s, %v; want 1.75s", got, err)
	}
	for _, bad := range []string{"", "4711 name S 1", "4711 (x) S 1 2", strings.Replace(line, "150", "x", 1)} {
		if _, err := parseCPU(bad); !errors.Is(err, errProcFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestParseMemory(t *testing.T) {
	const status = "Name:\tx\nVmHWM:\t    300 kB\nVmRSS:\t    200 kB\nRssAnon:\t     150 kB\nRssFile:\t      50 kB\nThreads:\t3\n"
	got, err := parseMemory(status)
	if want := (Memory{RSS: 200 << 10, Anon: 150 << 10, File: 50 << 10, Peak: 300 << 10}); err != nil || got != want {
		t.Fatalf("got %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "VmRSS:\t1 kB\n", strings.Replace(status, "200", "many", 1)} {
		if _, err := parseMemory(bad); !errors.Is(err, errProcFormat) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestQuantile(t *testing.T) {
	values := []int{5, 1, 4, 2, 3}
	for _, c := range []struct {
		q    float64
		want int
	}{{0, 1}, {0.2, 1}, {0.21, 2}, {0.5, 3}, {0.99, 5}, {1, 5}} {
		if got := quantile(values, c.q); got != c.want {
			t.Errorf("quantile %v: %d, want %d", c.q, got, c.want)
		}
	}
	if got := quantile([]int(nil), 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
	if values[0] != 5 {
		t.Error("the values were sorted in place")
	}
}

func TestMediansAreTakenPerFigure(t *testing.T) {
	cost := func(cpu0, cpu1, wall, first time.Duration) Cost {
		return Cost{CPU: []time.Duration{cpu0, cpu1}, Wall: wall, FirstByte: first, Bytes: 10, Pods: 2}
	}
	got := medians([]Cost{cost(1, 30, 7, 3), cost(3, 20, 9, 1), cost(2, 10, 8, 2)})
	if got.CPU[0] != 2 || got.CPU[1] != 20 || got.Wall != 8 || got.FirstByte != 2 || got.Total() != 22 {
		t.Fatalf("%+v", got)
	}
}

// Pods must be as different from each other as real ones, or compression
// flatters.
func TestPodsAreRealistic(t *testing.T) {
	names, ips, percent := map[string]bool{}, map[string]bool{}, map[string]int{}
	const n = 10_000
	for i := range n {
		p := pod(i)
		names[p.Namespace+"/"+p.Name] = true
		ips[podIP(i)] = true
		percent[p.Labels[percentLabel]]++
	}
	if len(names) != n || len(ips) != n {
		t.Fatalf("%d names, %d addresses of %d Pods", len(names), len(ips), n)
	}
	if len(percent) != 100 || percent["7"] != n/100 {
		t.Fatalf("%d values of %s, %d Pods with one", len(percent), percentLabel, percent["7"])
	}
	p := pod(4711)
	p.Status = podStatus(4711, metav1.Now())
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	// The server adds defaults, a token volume and managedFields.
	if len(data) < 2500 || len(data) > 4000 {
		t.Fatalf("%d bytes before defaults", len(data))
	}
}

func protobufList(t *testing.T, list *corev1.PodList) []byte {
	t.Helper()
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	envelope := runtime.Unknown{Raw: raw, ContentType: protobufType}
	body, err := envelope.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

func formNamed(t *testing.T, name string) form {
	t.Helper()
	for _, f := range forms() {
		if f.name == name {
			return f
		}
	}
	t.Fatalf("no form %q", name)
	return form{}
}

func TestAnswersAreCountedAndPaged(t *testing.T) {
	list := &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Pod{*pod(1), *pod(2), *pod(1)}}
	inJSON, err := json.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	row := `{"object":{"metadata":{"namespace":"bench-00","name":"` // as in a Table
	tableJSON := `{"metadata":{"continue":"more"},"rows":[` + row + `a"}}},` + row + `b"}}},{"object":{"metadata":{"namespace":"kube-system","name":"c"}}}]}`
	for _, c := range []struct {
		form string
		body []byte
	}{
		{"JSON, limit=500", inJSON},
		{"protobuf, limit=500", protobufList(t, list)},
		{"Table gzip, limit=500 (kubectl)", []byte(tableJSON)},
	} {
		f := formNamed(t, c.form)
		n, err := f.count(c.body)
		if err != nil || n != 2 {
			t.Errorf("%s: %d Pods, %v; want 2 distinct ones", c.form, n, err)
		}
		if next, err := f.nextPage(c.body); err != nil || next != "more" {
			t.Errorf("%s: next page %q, %v", c.form, next, err)
		}
	}
	if _, err := formNamed(t, "protobuf").count([]byte("k8s\x00garbage")); err == nil {
		t.Error("garbage was counted")
	}
	if next, err := formNamed(t, "JSON, limit=500").nextPage([]byte(`{"metadata":{"resourceVersion":"7"},"items":[]}`)); err != nil || next != "" {
		t.Errorf("after the last page: %q, %v", next, err)
	}
}

func TestPlainUnpacks(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write([]byte("text")); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	answer := &http.Response{Header: http.Header{"Content-Encoding": {"gzip"}}}
	if got, err := plain(answer, packed.Bytes()); err != nil || string(got) != "text" {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := plain(answer, packed.Bytes()[:packed.Len()-6]); err == nil {
		t.Error("a truncated answer passed for a whole one")
	}
}

func TestTickOf(t *testing.T) {
	for line, want := range map[string]int{
		`{"metadata":{"annotations":{"bench.isthmus.dev/tick":"42"},"managedFields":[{"f:bench.isthmus.dev/tick":{}}]}}`: 42,
		`{"managedFields":[{"f:bench.isthmus.dev/tick":{}}]}`:                                                            -1,
		`{"bench.isthmus.dev/tick":"x"}`:                                                                                 -1,
		`{"bench.isthmus.dev/tick":"7`:                                                                                   -1,
	} {
		got, ok := tickOf([]byte(line))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%s: %d, %t", line, got, ok)
		}
	}
}

func TestTimesKeepTheFirstSight(t *testing.T) {
	start := time.Now()
	line := func(n string) []byte { return []byte(`"bench.isthmus.dev/tick":"` + n + `"`) }
	direct, via := newTimes(10, 2, start), newTimes(10, 2, start)
	direct.note(line("10"), start.Add(5*time.Millisecond))
	direct.note(line("11"), start.Add(6*time.Millisecond))
	via.note(line("9"), start.Add(time.Millisecond)) // of an earlier run
	via.note(line("10"), start.Add(7*time.Millisecond))
	via.note(line("10"), start.Add(90*time.Millisecond)) // seen again
	if via.complete() {
		t.Fatal("complete with one change missing")
	}
	via.note(line("11"), start.Add(5*time.Millisecond))
	if got := via.since(direct); !via.complete() || got[0] != 2*time.Millisecond || got[1] != -time.Millisecond {
		t.Fatalf("%v", got)
	}
}

func TestReadInitialStopsAtTheBookmark(t *testing.T) {
	var got bytes.Buffer
	if err := readInitial(&got, strings.NewReader("events k8s.io/initial-events-end tail")); err != nil {
		t.Fatal(err)
	}
	got.Reset()
	if err := readInitial(&got, strings.NewReader("events only")); err == nil {
		t.Fatal("a watch cut off early passed for a whole one")
	}
	// The mark may be cut by a read.
	got.Reset()
	if err := readInitial(&got, &byTwo{[]byte("xx k8s.io/initial-events-end")}); err != nil {
		t.Fatal(err)
	}
}

type byTwo struct{ rest []byte }

func (b *byTwo) Read(p []byte) (int, error) {
	n := copy(p, b.rest[:min(2, len(b.rest))])
	b.rest = b.rest[n:]
	if n == 0 {
		return 0, errors.New("ended")
	}
	return n, nil
}

func TestReportNamesEveryFigure(t *testing.T) {
	r := &Result{
		Pods: 1024, Started: time.Unix(0, 0),
		Lists: []ListRow{{Form: "JSON", Reference: Cost{CPU: []time.Duration{4096 * time.Microsecond}, Pods: 1024}, Product: Cost{CPU: []time.Duration{1024 * time.Microsecond, 1024 * time.Microsecond}, Pods: 1024}}},
		Memory: []MemoryRow{
			{What: "empty", Product: Memory{RSS: 10 << 20}},
			{What: "at rest", Product: Memory{RSS: 12 << 20, File: 5 << 20, Peak: 20 << 20}},
		},
	}
	for _, markdown := range []bool{true, false} {
		var out strings.Builder
		if err := r.Write(&out, markdown); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"4.0 µs", "1.0 µs", "0.25", "2.0 µs", "0.50", "2.0 KiB", "12 MiB, 5 MiB, 20 MiB"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("markdown %t: %q is missing in\n%s", markdown, want, out.String())
			}
		}
	}
}
