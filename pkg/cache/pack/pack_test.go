package pack

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/arena"
	"github.com/isthmus-dev/isthmus/pkg/cache/cachetest"
	"github.com/isthmus-dev/isthmus/pkg/cache/compact"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

var fieldNames = []string{"spec.nodeName", "status.phase"}

func newPacker() *Packer { return &Packer{Fields: fieldNames, Arena: arena.NewPoisoned()} }

// odd are objects with everything that a record has to tell apart.
func odd() []*cache.Object {
	var all []*cache.Object
	for i, uid := range []types.UID{"", "a", "3f2504e0-4f89-41d3-9a0c-0305e82c3301", "3F2504E0-4F89-41D3-9A0C-0305E82C3301", "3f2504e0x4f89-41d3-9a0c-0305e82c3301", "web", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"} {
		o := &cache.Object{
			Key: cache.Key{Namespace: "web", Name: "web"}, SourceName: "web", Cluster: "m1", UID: uid, RV: uint64(i) << 55, SourceRV: uint64(i),
			Body: cache.Bytes(fmt.Sprint("bytes \xff of ", i)),
		}
		if i > 0 {
			o.Key = cache.Key{Name: fmt.Sprint("n", i)}
			o.Cluster = cache.ControlPlane
		}
		if i%2 == 0 {
			o.Labels = compact.MakeLabels([]wire.Pair{{Key: "a", Value: ""}, {Key: "b", Value: "web"}, {Key: "", Value: "\xff"}})
			o.Fields = compact.MakeFields(fieldNames, []string{"n1", ""})
		} else {
			o.Labels = compact.MakeLabels(nil)
		}
		switch i {
		case 1:
			o.Origin = &cache.Origin{}
		case 2:
			o.Origin = &cache.Origin{Node: "n1", Owners: []cache.OwnerRef{{APIVersion: "v1", Kind: "Node", Name: "n1", UID: uid, Controller: true}, {Kind: "x"}}}
		case 3:
			o.Origin = &cache.Origin{Others: &cache.OtherRefs{Involved: cache.InvolvedRef{Kind: "Pod", Namespace: "web", Name: "p", UID: "web"}}}
		case 4:
			o.Origin = &cache.Origin{Others: &cache.OtherRefs{Lists: [][]string{{"a", "web"}, nil, {}}}}
		}
		all = append(all, o)
	}
	return all
}

func compare(t *testing.T, want, got *cache.Object) {
	t.Helper()
	if want.Key != got.Key || want.SourceName != got.SourceName || want.Cluster != got.Cluster || want.UID != got.UID || want.RV != got.RV || want.SourceRV != got.SourceRV {
		t.Errorf("%+v has become %+v", want, got)
	}
	if string(want.Raw()) != string(got.Raw()) || got.Body.Len() != len(got.Raw()) {
		t.Errorf("%s: %q has become %q", want.Key, want.Raw(), got.Raw())
	}
	compareLabels(t, want, got)
	if got.Fields != nil && (!got.Fields.Has(fieldNames[1]) || got.Fields.Has("status.podIP") || got.Fields.Get("status.podIP") != "") {
		t.Errorf("%s: it has other fields", want.Key)
	}
	for _, f := range fieldNames {
		if (want.Fields == nil) != (got.Fields == nil) || want.Fields != nil && want.Fields.Get(f) != got.Fields.Get(f) {
			t.Errorf("%s: field %s", want.Key, f)
		}
	}
	if !reflect.DeepEqual(want.Origin, got.Origin) {
		t.Errorf("%s: origin %+v has become %+v", want.Key, want.Origin, got.Origin)
	}
}

func compareLabels(t *testing.T, want, got *cache.Object) {
	t.Helper()
	list := func(o *cache.Object) (pairs []wire.Pair) {
		for k, v := range o.Labels.(labelSet).All() {
			pairs = append(pairs, wire.Pair{Key: k, Value: v})
		}
		return pairs
	}
	if w, g := list(want), list(got); !slices.Equal(w, g) || got.Labels.(labelSet).Len() != len(w) {
		t.Errorf("%s: labels %q have become %q", want.Key, w, g)
	}
	for _, key := range []string{"a", "b", "", "web", "missing"} {
		w, has := want.Labels.Lookup(key)
		if g, ok := got.Labels.Lookup(key); g != w || ok != has || got.Labels.Has(key) != has || got.Labels.Get(key) != w {
			t.Errorf("%s: label %q=%q (%t) has become %q (%t)", want.Key, key, w, has, g, ok)
		}
	}
}

func TestBlocksHoldEverything(t *testing.T) {
	p := newPacker()
	b := p.Pack(odd())
	loaded, rest, err := p.Load(append(b.Append(nil), "rest"...))
	if err != nil || string(rest) != "rest" {
		t.Fatalf("%q is left: %v", rest, err)
	}
	again := p.Pack(b.Objects()) // of objects whose labels and fields are parts of a head
	if !bytes.Equal(again.Append(nil), b.Append(nil)) {
		t.Error("objects of a block make another block")
	}
	for _, b := range []*Block{b, loaded, again} {
		got := b.Objects()
		if len(got) != len(odd()) || b.Len() != len(got) {
			t.Fatalf("%d objects", len(got))
		}
		for i, want := range odd() {
			compare(t, want, got[i])
		}
		if b.CompareFirst(odd()[0].Key) != 0 || b.CompareFirst(cache.Key{Namespace: "web", Name: "x"}) >= 0 || b.CompareFirst(cache.Key{}) <= 0 {
			t.Error("the first key is another one")
		}
	}
	if n := len(p.Pack(nil).Objects()); n != 0 {
		t.Errorf("%d objects in an empty block", n)
	}
}

// TestMatching: what is asked for comes as it was packed, alone or with others.
func TestMatching(t *testing.T) {
	b := newPacker().Pack(odd())
	for wanted := range 1 << len(odd()) {
		i := -1
		got := b.Matching(func(o *cache.Object) bool {
			i++
			compareLabels(t, odd()[i], o)
			return wanted>>i&1 != 0
		})
		for i, want := range odd() {
			if wanted>>i&1 == 0 {
				continue
			}
			if len(got) == 0 {
				t.Fatalf("object %d of %b is missing", i, wanted)
			}
			compare(t, want, got[0])
			got = got[1:]
		}
		if len(got) != 0 {
			t.Fatalf("%d objects more than %b", len(got), wanted)
		}
	}
}

// TestMentions: no block that has a text is passed over for it.
func TestMentions(t *testing.T) {
	b := newPacker().Pack(odd())
	texts := []string{""}
	for _, o := range odd() {
		texts = append(texts, o.Key.Name)
		for k, v := range o.Labels.(labelSet).All() {
			texts = append(texts, k, v)
		}
		if o.Fields != nil {
			texts = append(texts, o.Fields.Get(fieldNames[0]), o.Fields.Get(fieldNames[1]))
		}
	}
	for _, text := range texts {
		if !b.Mentions([][]string{{text}}) || !b.Mentions([][]string{{"missing", text}, {text}}) {
			t.Errorf("%q is not found", text)
		}
	}
	const uid = "3f2504e0-4f89-41d3-9a0c-0305e82c3301" // the text of a label is written as the UID before it
	labelled := newPacker().Pack([]*cache.Object{
		{Key: cache.Key{Name: "a"}, UID: uid, Body: cache.Bytes{}},
		{Key: cache.Key{Name: "b"}, Labels: compact.MakeLabels([]wire.Pair{{Key: "controller-uid", Value: uid}}), Body: cache.Bytes{}},
	})
	if !labelled.Mentions([][]string{{uid}}) {
		t.Error("a UID is not found")
	}
	if b.Mentions([][]string{{"missing", "also missing"}}) || b.Mentions([][]string{{"web"}, {"missing"}}) || !b.Mentions(nil) {
		t.Error("what is missing is found")
	}
}

// TestItems: a pack writes the items of a list as they are made of its objects,
// and knows before how long they are.
func TestItems(t *testing.T) {
	var objects []*cache.Object
	for i := range 20 {
		objects = append(objects, cachetest.RealisticObject(t, nil, i, 7))
	}
	objects = append(objects, &cache.Object{Key: cache.Key{Namespace: "z"}, Body: cache.Bytes{}})
	p := &Packer{Arena: arena.NewPoisoned()}
	packed := p.Pack(objects)
	loaded, _, err := p.Load(packed.Append(nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range []*Block{packed, loaded} {
		var want, wantMetadata []byte
		for _, o := range objects {
			want = protowire.AppendBytes(protowire.AppendTag(want, 2, protowire.BytesType), o.Raw())
			pod := &corev1.Pod{}
			if err := pod.Unmarshal(o.Raw()); err != nil {
				t.Fatal(err)
			}
			meta, err := pod.ObjectMeta.Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if len(o.Raw()) == 0 {
				meta = nil
			}
			item := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), meta)
			wantMetadata = protowire.AppendBytes(protowire.AppendTag(wantMetadata, 2, protowire.BytesType), item)
		}
		got, err := b.AppendItems([]byte("x"), false)
		if err != nil || string(got) != "x"+string(want) || b.Framed() != len(want) {
			t.Errorf("%d bytes, told as %d, instead of %d: %v", len(got)-1, b.Framed(), len(want), err)
		}
		for range 2 {
			size, err := b.FramedMetadata()
			if err != nil || size != len(wantMetadata) {
				t.Errorf("metadata is told to have %d bytes instead of %d: %v", size, len(wantMetadata), err)
			}
		}
		if got, err = b.AppendItems(nil, true); err != nil || string(got) != string(wantMetadata) {
			t.Errorf("metadata of %d bytes instead of %d: %v", len(got), len(wantMetadata), err)
		}
		if _, ok := b.Namespace(); ok {
			t.Error("20 namespaces are told to be one")
		}
	}
	one := p.Pack(objects[20:])
	if namespace, ok := one.Namespace(); !ok || namespace != "z" {
		t.Errorf("namespace %q, %t", namespace, ok)
	}
}

// TestLoadRefusesDamage: no damaged head is taken for a whole one that has
// other sizes, and none ends the process.
func TestLoadRefusesDamage(t *testing.T) {
	p := newPacker()
	whole := p.Pack(odd()).Append(nil)
	for n := range whole {
		if _, _, err := p.Load(whole[:n]); err == nil {
			t.Errorf("the first %d of %d bytes are a block", n, len(whole))
		}
		for _, bit := range []byte{1, 0x10, 0x80} {
			damaged := append([]byte(nil), whole...)
			damaged[n] ^= bit
			_, _, _ = p.Load(damaged) // a checksum beyond tells; this must only end
		}
	}
}

func FuzzLoad(f *testing.F) {
	p := newPacker()
	f.Add(p.Pack(odd()).Append(nil))
	f.Fuzz(func(_ *testing.T, in []byte) { _, _, _ = p.Load(in) })
}
