package gateway

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/randfill"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// podFiller makes Pods of every shape, with the words that the printer knows.
func podFiller(seed int64) *randfill.Filler {
	oneOf := func(c randfill.Continue, words ...string) string { return words[c.Intn(len(words))] }
	return randfill.NewWithSeed(seed).NilChance(0.3).NumElements(0, 3).MaxDepth(14).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(m *metav1.Time, c randfill.Continue) {
			*m = metav1.Unix(time.Now().Unix()-int64(c.Intn(100000))-10, 0)
		},
		func(f *metav1.FieldsV1, _ randfill.Continue) { f.SetRawString(`{"f:metadata":{}}`) },
		func(s *string, c randfill.Continue) {
			*s = oneOf(c, "", "a", "b", "Completed", "NodeLost", "PodInitializing")
		},
		func(p *corev1.PodPhase, c randfill.Continue) {
			*p = corev1.PodPhase(oneOf(c, "Running", "Pending", "Succeeded", "Failed", ""))
		},
		func(t *corev1.PodConditionType, c randfill.Continue) {
			*t = corev1.PodConditionType(oneOf(c, "Ready", "Initialized", "PodScheduled", "custom"))
		},
		func(s *corev1.ConditionStatus, c randfill.Continue) {
			*s = corev1.ConditionStatus(oneOf(c, "True", "False"))
		},
		func(r *corev1.ContainerRestartPolicy, c randfill.Continue) {
			*r = corev1.ContainerRestartPolicy(oneOf(c, "Always", "Never"))
		},
		func(t *corev1.ContainerStateTerminated, c randfill.Continue) {
			c.FillNoCustom(t)
			t.ExitCode, t.Signal = int32(c.Intn(3)), int32(c.Intn(3))
		},
	)
}

func podKind() *kind {
	gvk := corev1.SchemeGroupVersion.WithKind("Pod")
	return &kind{gvk: gvk, encoding: cache.Protobuf, namespaced: true, scheme: legacyscheme.Scheme, known: true, view: printViewOf(gvk)}
}

// A row made from the cut bytes is the row made from all of them.
func TestPrintViewOfPodsMissesNothing(t *testing.T) {
	tables := newTableMaker(legacyscheme.Scheme, nil)
	cut, all := podKind(), podKind()
	all.view = nil
	rows := map[string]bool{}
	for seed := range int64(3000) {
		p := &corev1.Pod{}
		podFiller(seed).Fill(p)
		raw, err := p.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		o := &cache.Object{Key: cache.Key{Namespace: p.Namespace, Name: p.Name}, Body: cache.Bytes(raw)}
		var got, want metav1.TableRow
		// Ages move on: a difference counts when the same row was made from all
		// bytes before and afterwards.
		for before := (metav1.TableRow{}); ; before = want {
			var ok, wantOK bool
			got, ok = tables.printed(cut, o)
			want, wantOK = tables.printed(all, o)
			if !ok || !wantOK {
				t.Fatalf("seed %d: printed %t from the cut bytes, %t from all", seed, ok, wantOK)
			}
			diff := cmp.Diff(want.Cells, got.Cells)
			if diff == "" {
				break
			}
			if cmp.Equal(before.Cells, want.Cells) {
				t.Fatalf("seed %d: cells differ: %s", seed, diff)
			}
		}
		if diff := cmp.Diff(want.Conditions, got.Conditions); diff != "" {
			t.Fatalf("seed %d: conditions differ: %s", seed, diff)
		}
		rows[fmt.Sprint(got.Cells[1:4])+fmt.Sprint(got.Cells[5:])] = true
	}
	if len(rows) < 1000 {
		t.Fatalf("only %d different rows: the Pods are too alike to show anything", len(rows))
	}
}

func TestPrintViewCutsAndRefuses(t *testing.T) {
	raw, err := realisticPod(1).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	cut, err := podView.appendTo(nil, raw)
	if err != nil {
		t.Fatal(err)
	}
	if len(cut) > len(raw)/3 {
		t.Errorf("%d of %d bytes are left", len(cut), len(raw))
	}
	for n := range raw {
		// Whatever is accepted must decode: a part of a message may be one.
		if out, err := podView.appendTo(nil, raw[:n]); err == nil {
			if err := new(corev1.Pod).Unmarshal(out); err != nil {
				t.Fatalf("%d bytes: accepted, and then %v", n, err)
			}
		}
	}
	if _, err := podView.appendTo(nil, raw[:len(raw)-1]); err == nil {
		t.Error("a truncated Pod was accepted")
	}
}

// Bytes that the printer does not need are no reason to show a row as unknown.
func FuzzPrintView(f *testing.F) {
	raw, err := realisticPod(1).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte{0x0a, 0x02, 0x0a})
	tables := newTableMaker(legacyscheme.Scheme, nil)
	cut, all := podKind(), podKind()
	all.view = nil
	f.Fuzz(func(t *testing.T, raw []byte) {
		o := &cache.Object{Body: cache.Bytes(raw)}
		want, ok := tables.printed(all, o)
		got, gotOK := tables.printed(cut, o)
		if !ok {
			return
		}
		if !gotOK {
			t.Fatalf("%q can be printed, but not when cut", raw)
		}
		for _, i := range []int{0, 1, 2, 5, 6, 7, 8} { // without ages, which move
			if diff := cmp.Diff(want.Cells[i], got.Cells[i]); diff != "" {
				t.Fatalf("cell %d: %s", i, diff)
			}
		}
	})
}
