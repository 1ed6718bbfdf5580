package references

import (
	"strings"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Kind names a kind without its version, as "GROUP/KIND".
type Kind string

const (
	podKind    Kind = "/Pod"
	nodeKind   Kind = "/Node"
	claimKind  Kind = "/PersistentVolumeClaim"
	volumeKind Kind = "/PersistentVolume"
)

// KindOf is the kind that an apiVersion and a kind name.
func KindOf(apiVersion, kind string) Kind {
	group, _, found := strings.Cut(apiVersion, "/")
	if !found {
		group = ""
	}
	return Kind(group + "/" + kind)
}

// KindOfResource is the kind of a cached resource.
func KindOfResource(res cache.Resource) Kind { return Kind(res.Group + "/" + res.Kind) }

// Table lists the references of a kind beside owners and a Pod's Node.
type Table struct {
	About *About
	Lists []List
}

// About leads to the one object that an object is about.
type About struct{ APIVersion, Kind, Namespace, Name, UID wire.Path }

// List leads to names of one kind, in the namespace of the object that holds
// them. Where Kinds is set, it leads to the kinds of the same references, and
// only those of To are names of To.
type List struct {
	Path  wire.Path
	Kinds wire.Path
	To    Kind
}

var tables = map[Kind]*Table{
	"/Event": {About: &About{
		APIVersion: wire.EventInvolvedAPIVersion, Kind: wire.EventInvolvedKind,
		Namespace: wire.EventInvolvedNamespace, Name: wire.EventInvolvedName, UID: wire.EventInvolvedUID,
	}},
	podKind:   {Lists: []List{{Path: wire.PodClaimNames, To: claimKind}}},
	claimKind: {Lists: []List{{Path: wire.ClaimVolumeName, To: volumeKind}}},
	volumeKind: {About: &About{
		APIVersion: wire.VolumeClaimAPIVersion, Kind: wire.VolumeClaimKind,
		Namespace: wire.VolumeClaimNamespace, Name: wire.VolumeClaimName, UID: wire.VolumeClaimUID,
	}},
	"discovery.k8s.io/EndpointSlice": {Lists: []List{
		{Path: wire.SliceTargetNames, Kinds: wire.SliceTargetKinds, To: podKind},
		{Path: wire.SliceNodeNames, To: nodeKind},
	}},
	"/Endpoints": {Lists: []List{
		{Path: wire.ReadyTargetNames, Kinds: wire.ReadyTargetKinds, To: podKind},
		{Path: wire.ReadyNodeNames, To: nodeKind},
		{Path: wire.NotReadyTargetNames, Kinds: wire.NotReadyTargetKinds, To: podKind},
		{Path: wire.NotReadyNodeNames, To: nodeKind},
	}},
}

// TableOf is the table of a kind, nil where there is none.
func TableOf(res cache.Resource) *Table { return tables[KindOfResource(res)] }

// read reads what a kind refers to beside its owners; nil where there is nothing.
func (t *Table) read(enc cache.Encoding, raw []byte) (*cache.OtherRefs, error) {
	if t == nil {
		return nil, nil
	}
	var o cache.OtherRefs
	var err error
	if t.About != nil {
		if o.Involved, err = t.About.read(enc, raw); err != nil {
			return nil, err
		}
	}
	if o.Lists, err = t.readLists(enc, raw); err != nil {
		return nil, err
	}
	if o.Involved.Name == "" && o.Lists == nil {
		return nil, nil
	}
	return &o, nil
}

// readLists reads the names in the lists of a kind; nil where there are none.
// The strings are the caller's own.
func (t *Table) readLists(enc cache.Encoding, raw []byte) ([][]string, error) {
	var lists [][]string
	for i, l := range t.Lists {
		names, err := l.read(enc, raw)
		if err != nil {
			return nil, err
		}
		if names == nil {
			continue
		}
		if lists == nil {
			lists = make([][]string, len(t.Lists))
		}
		lists[i] = own(names, l.To == nodeKind)
	}
	return lists, nil
}

func (l List) read(enc cache.Encoding, raw []byte) ([]string, error) {
	names, err := wire.Texts(enc, raw, l.Path)
	if err != nil {
		return nil, err
	}
	kinds := names
	if l.Kinds.Proto != nil {
		if kinds, err = wire.Texts(enc, raw, l.Kinds); err != nil {
			return nil, err
		}
	}
	_, want, _ := strings.Cut(string(l.To), "/")
	some := false
	for i := range names {
		if l.Kinds.Proto != nil && (i >= len(kinds) || kinds[i] != want) {
			names[i] = ""
		}
		some = some || names[i] != ""
	}
	if !some {
		return nil, nil
	}
	return names, nil
}

// own makes names that do not alias the bytes they were read from: shared ones
// where many objects name the same, else parts of one string.
func own(names []string, shared bool) []string {
	if shared {
		for i, n := range names {
			names[i] = intern(n)
		}
		return names
	}
	all := strings.Join(names, "")
	for i, n := range names {
		names[i], all = all[:len(n)], all[len(n):]
	}
	return names
}
