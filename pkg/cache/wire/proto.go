package wire

import (
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/types"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// Field numbers of metav1.ObjectMeta and metav1.OwnerReference.
const (
	metaField = 1

	metaName        = 1
	metaNamespace   = 3
	metaUID         = 5
	metaRV          = 6
	metaGeneration  = 7
	metaDeletion    = 9
	metaLabels      = 11
	metaAnnotations = 12
	metaOwners      = 13

	ownerKind       = 1
	ownerName       = 3
	ownerUID        = 4
	ownerAPIVersion = 5
	ownerController = 6
)

// field is one field of a message: its bytes with the tag, and its value.
type field struct {
	num  protowire.Number
	typ  protowire.Type
	full []byte // tag and value
	val  []byte // content of a length-delimited field, else the value's bytes
}

func (f field) varint() uint64 {
	v, _ := protowire.ConsumeVarint(f.val)
	return v
}

// text is the value of a string field. It is not checked to be UTF-8, since
// servers store what is not.
func (f field) text() (string, error) {
	if f.typ != protowire.BytesType {
		return "", malformed("field %d is no string", f.num)
	}
	return alias(f.val), nil
}

// nextField cuts the first field off a message.
func nextField(b []byte) (f field, rest []byte, err error) {
	num, typ, n := protowire.ConsumeTag(b)
	if n < 0 {
		return field{}, nil, malformed("tag: %v", protowire.ParseError(n))
	}
	m := protowire.ConsumeFieldValue(num, typ, b[n:])
	if m < 0 {
		return field{}, nil, malformed("field %d: %v", num, protowire.ParseError(m))
	}
	f = field{num: num, typ: typ, full: b[:n+m], val: b[n : n+m]}
	if typ == protowire.BytesType {
		f.val, _ = protowire.ConsumeBytes(f.val)
	}
	return f, b[n+m:], nil
}

// single finds the only field of this number; ok is false where there is none.
func single(msg []byte, num protowire.Number) (val []byte, ok bool, err error) {
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return nil, false, err
		}
		msg = rest
		if f.num != num {
			continue
		}
		if ok || f.typ != protowire.BytesType {
			return nil, false, malformed("field %d is not one message", num)
		}
		val, ok = f.val, true
	}
	return val, ok, nil
}

func parseMetaProto(raw []byte) (Meta, error) {
	meta, ok, err := single(raw, metaField)
	if err != nil {
		return Meta{}, err
	}
	if !ok {
		return Meta{}, malformed("no metadata")
	}
	var m Meta
	for len(meta) > 0 {
		f, rest, err := nextField(meta)
		if err != nil {
			return Meta{}, err
		}
		meta = rest
		if err := m.addProto(f); err != nil {
			return Meta{}, err
		}
	}
	m.Labels, m.Annotations = sortPairs(m.Labels), sortPairs(m.Annotations)
	return m, nil
}

func (m *Meta) addProto(f field) (err error) {
	switch f.num {
	case metaName:
		m.Name, err = f.text()
	case metaNamespace:
		m.Namespace, err = f.text()
	case metaUID:
		m.UID, err = f.text()
	case metaRV:
		m.ResourceVersion, err = f.text()
	case metaGeneration:
		if f.typ != protowire.VarintType {
			return malformed("generation is no number")
		}
		m.Generation = int64(f.varint()) //nolint:gosec // the wire form of a negative int64
	case metaDeletion:
		if f.typ != protowire.BytesType {
			return malformed("deletionTimestamp is no message")
		}
		m.Deleting = true
	case metaLabels:
		m.Labels, err = appendEntry(m.Labels, f)
	case metaAnnotations:
		m.Annotations, err = appendEntry(m.Annotations, f)
	case metaOwners:
		var o cache.OwnerRef
		o, err = parseOwner(f)
		m.Owners = append(m.Owners, o)
	}
	return err
}

func appendEntry(pairs []Pair, f field) ([]Pair, error) {
	if f.typ != protowire.BytesType {
		return nil, malformed("field %d is no map", f.num)
	}
	if pairs == nil {
		pairs = make([]Pair, 0, 8)
	}
	var p Pair
	for msg := f.val; len(msg) > 0; {
		e, rest, err := nextField(msg)
		if err != nil {
			return nil, err
		}
		msg = rest
		switch e.num {
		case 1:
			p.Key, err = e.text()
		case 2:
			p.Value, err = e.text()
		}
		if err != nil {
			return nil, err
		}
	}
	return append(pairs, p), nil
}

func parseOwner(f field) (o cache.OwnerRef, err error) {
	if f.typ != protowire.BytesType {
		return o, malformed("ownerReferences is no message")
	}
	for msg := f.val; len(msg) > 0; {
		e, rest, err := nextField(msg)
		if err != nil {
			return o, err
		}
		msg = rest
		var uid string
		switch e.num {
		case ownerKind:
			o.Kind, err = e.text()
		case ownerName:
			o.Name, err = e.text()
		case ownerUID:
			uid, err = e.text()
			o.UID = types.UID(uid)
		case ownerAPIVersion:
			o.APIVersion, err = e.text()
		case ownerController:
			if e.typ != protowire.VarintType {
				return o, malformed("controller is no bool")
			}
			o.Controller = e.varint() != 0
		}
		if err != nil {
			return o, err
		}
	}
	return o, nil
}

// textProto reads the string, bool or number at a path. Of several occurrences
// the last one counts, as when the messages are merged.
func textProto(msg []byte, path []int32) (found string, err error) {
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return "", err
		}
		msg = rest
		if f.num != protowire.Number(path[0]) {
			continue
		}
		switch {
		case len(path) > 1 && f.typ == protowire.BytesType:
			inner, err := textProto(f.val, path[1:])
			if err != nil {
				return "", err
			}
			if inner != "" {
				found = inner
			}
		case len(path) > 1:
			return "", malformed("field %d is no message", f.num)
		case f.typ == protowire.VarintType:
			found = strconv.FormatInt(int64(f.varint()), 10) //nolint:gosec // the wire form of a negative number
		default:
			if found, err = f.text(); err != nil {
				return "", err
			}
		}
	}
	return found, nil
}
