package transcode_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/isthmus-dev/isthmus/pkg/proxy/gateway/transcode"
)

// protoType is what generated API types have.
type protoType interface {
	runtime.Object
	Marshal() ([]byte, error)
	Unmarshal([]byte) error
}

// theLongWay decodes and encodes; ok is false where it refuses the bytes.
func theLongWay(t reflect.Type, raw []byte, apiVersion, kind string) ([]byte, bool) {
	obj := reflect.New(t).Interface().(protoType)
	if obj.Unmarshal(raw) != nil {
		return nil, false
	}
	if kind != "" {
		reflect.ValueOf(obj).Elem().FieldByName("TypeMeta").Set(reflect.ValueOf(metav1.TypeMeta{Kind: kind, APIVersion: apiVersion}))
	}
	var buf bytes.Buffer
	if json.NewEncoder(&buf).Encode(obj) != nil {
		return nil, false
	}
	return bytes.TrimSuffix(buf.Bytes(), []byte("\n")), true
}

// filler makes random values of API types that protobuf can carry.
func filler(seed int64) *randfill.Filler {
	quantities := []string{"0", "1", "250m", "1000", "1500m", "64Mi", "1024Ki", "1.5Gi", "1e3", "12E", "-5", "100M", "0.1", "3k", "1000000000000000"}
	raw := []string{`{}`, `{"f:a":{"f:b":{}}}`, `{"f:a<b>&":{}}`, `{ "f:a" : {} }`, `{"k:{\"a\":1}":{}}`}
	return randfill.NewWithSeed(seed).NilChance(0.4).NumElements(0, 3).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = resource.MustParse(quantities[c.Intn(len(quantities))])
		},
		func(m *metav1.Time, c randfill.Continue) {
			if c.Bool() {
				*m = metav1.NewTime(time.Unix(c.Int63n(1<<34)-1<<33, 0))
			}
		},
		func(m *metav1.MicroTime, c randfill.Continue) {
			*m = metav1.NewMicroTime(time.UnixMicro(c.Int63n(1 << 52)))
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.SetRawString(raw[c.Intn(len(raw))]) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(raw[c.Intn(len(raw))]) },
		func(i *intstr.IntOrString, c randfill.Continue) {
			*i = intstr.FromInt32(c.Int31())
			if c.Bool() {
				*i = intstr.FromString(c.String(5))
			}
		},
		func(s *string, c randfill.Continue) {
			texts := []string{"", "plain", "a<b>&c", "quote\"back\\slash", "tab\tnew\nline\r\b\f\x00\x1f\x7f", "é世界\u2028\u2029", "bad\xff\xc3utf"}
			*s = texts[c.Intn(len(texts))]
		},
	)
}

// types are all types of the scheme that have a protobuf form.
func types() map[reflect.Type]string {
	out := map[reflect.Type]string{}
	for gvk, t := range scheme.Scheme.AllKnownTypes() {
		if _, ok := reflect.TypeAssert[protoType](reflect.New(t)); ok && gvk.Version != runtime.APIVersionInternal && strings.HasPrefix(t.PkgPath(), "k8s.io/api/") {
			out[t] = gvk.String()
		}
	}
	return out
}

func TestEveryTypeHasAPlan(t *testing.T) {
	all := types()
	if len(all) < 100 {
		t.Fatalf("only %d types", len(all))
	}
	for typ := range all {
		if _, err := transcode.PlanFor(typ); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
	}
}

func TestSameAsDecoding(t *testing.T) {
	seed := rand.Int64()
	t.Logf("seed %d", seed)
	f := filler(seed)
	for typ, gvk := range types() {
		plan, err := transcode.PlanFor(typ)
		if err != nil {
			continue // reported by TestEveryTypeHasAPlan
		}
		odd := 0
		for range 10 {
			obj := reflect.New(typ)
			f.Fill(obj.Interface())
			raw, err := obj.Interface().(protoType).Marshal()
			if err != nil {
				continue // a union without a branch
			}
			for _, kind := range []string{"", "Kind"} {
				want, ok := theLongWay(typ, raw, "g/v1", kind)
				got, err := plan.Append(nil, raw, "g/v1", kind)
				switch {
				case errors.Is(err, transcode.ErrOdd):
					odd++
				case err != nil:
					t.Fatalf("%s: %v", gvk, err)
				case ok && !bytes.Equal(got, want):
					t.Fatalf("%s:\n got %s\nwant %s", gvk, got, want)
				}
				if !ok && err == nil {
					t.Fatalf("%s: written although the decoder refuses it: %s", gvk, got)
				}
			}
		}
		if odd > 1 {
			t.Errorf("%s: %d of 20 took the long way", gvk, odd)
		}
	}
}

func TestKeepsWhatPrecedes(t *testing.T) {
	plan, err := transcode.PlanFor(reflect.TypeFor[corev1.ConfigMap]())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := (&corev1.ConfigMap{Data: map[string]string{"b": "2", "a": "1"}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := plan.Append([]byte("x,"), raw, "v1", "ConfigMap")
	if want := `x,{"kind":"ConfigMap","apiVersion":"v1","metadata":{},"data":{"a":"1","b":"2"}}`; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
}

// FuzzAppend: whatever the bytes, the result is that of the decoder or ErrOdd.
func FuzzAppend(f *testing.F) {
	fill := filler(1)
	for range 20 {
		var p corev1.Pod
		fill.Fill(&p)
		if raw, err := p.Marshal(); err == nil {
			f.Add(raw)
		}
	}
	plan, err := transcode.PlanFor(podType)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, raw []byte) { checkPod(t, plan, raw) })
}

var podType = reflect.TypeFor[corev1.Pod]()

func checkPod(t *testing.T, plan *transcode.Plan, raw []byte) (odd bool) {
	t.Helper()
	got, err := plan.Append(nil, raw, "v1", "Pod")
	if err != nil {
		if !errors.Is(err, transcode.ErrOdd) {
			t.Fatal(err)
		}
		return true
	}
	want, ok := theLongWay(podType, raw, "v1", "Pod")
	if !ok {
		t.Fatalf("written although the decoder refuses %x: %s", raw, got)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%x:\n got %s\nwant %s", raw, got, want)
	}
	return false
}

// TestDamagedBytes flips, cuts and doubles bytes of real messages.
func TestDamagedBytes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	plan, err := transcode.PlanFor(podType)
	if err != nil {
		t.Fatal(err)
	}
	fill := filler(int64(seed)) //nolint:gosec // a seed
	written := 0
	for range 60 {
		var p corev1.Pod
		fill.Fill(&p)
		raw, err := p.Marshal()
		if err != nil {
			continue
		}
		for range 50 {
			b := bytes.Clone(raw)
			for range 1 + r.IntN(3) {
				at := r.IntN(len(b))
				switch r.IntN(4) {
				case 0:
					b[at] ^= 1 << r.IntN(8)
				case 1:
					b = b[:at+1]
				case 2:
					b = append(b, b[at:min(at+40, len(b))]...)
				case 3:
					b[at] = byte(r.IntN(256))
				}
			}
			if !checkPod(t, plan, b) {
				written++
			}
		}
	}
	if written < 100 {
		t.Errorf("only %d damaged messages were written: the test says little", written)
	}
}
