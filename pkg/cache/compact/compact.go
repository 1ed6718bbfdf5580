// Package compact keeps labels and selectable fields of an object in one
// string instead of a map.
//
// Label sets are interned whole: the Pods of one ReplicaSet share one string,
// and the set itself is a pointer. Both types are immutable.
package compact

import (
	"encoding/binary"
	"iter"
	"unique"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// Labels is a label set. It implements labels.Labels.
type Labels struct{ packed unique.Handle[string] }

var _ labels.Labels = Labels{}

// MakeLabels packs pairs with unique keys.
func MakeLabels(pairs []wire.Pair) Labels {
	var stack [512]byte
	buf := stack[:0]
	for _, p := range pairs {
		buf = appendString(appendString(buf, p.Key), p.Value)
	}
	return Labels{unique.Make(string(buf))}
}

// All yields keys and values in the order they were packed.
func (l Labels) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := l.packed.Value(); rest != ""; {
			var key, value string
			key, rest = cutString(rest)
			value, rest = cutString(rest)
			if !yield(key, value) {
				return
			}
		}
	}
}

// Lookup implements labels.Labels.
func (l Labels) Lookup(label string) (value string, exists bool) {
	for rest := l.packed.Value(); rest != ""; {
		var key string
		key, rest = cutString(rest)
		value, rest = cutString(rest)
		if key == label {
			return value, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l Labels) Has(label string) bool {
	_, ok := l.Lookup(label)
	return ok
}

// Get implements labels.Labels.
func (l Labels) Get(label string) string {
	v, _ := l.Lookup(label)
	return v
}

// Len is the number of labels.
func (l Labels) Len() (n int) {
	for range l.All() {
		n++
	}
	return n
}

// Fields holds the values of selectable fields, whose names are shared by all
// objects of a kind. It implements fields.Fields.
type Fields struct {
	names  []string
	packed string
}

var _ fields.Fields = (*Fields)(nil)

// MakeFields packs values in the order of their names; names is kept.
func MakeFields(names, values []string) *Fields {
	var stack [512]byte
	buf := stack[:0]
	for _, v := range values {
		buf = appendString(buf, v)
	}
	return &Fields{names: names, packed: string(buf)}
}

// Values yields the values in the order of their names.
func (f *Fields) Values() iter.Seq[string] {
	return func(yield func(string) bool) {
		rest := f.packed
		for range f.names {
			var value string
			if value, rest = cutString(rest); !yield(value) {
				return
			}
		}
	}
}

func (f *Fields) lookup(field string) (string, bool) { return Lookup(f.names, f.Values(), field) }

// Lookup finds the value of a field among values in the order of their names.
func Lookup(names []string, values iter.Seq[string], field string) (string, bool) {
	i := 0
	for value := range values {
		if names[i] == field {
			return value, true
		}
		i++
	}
	return "", false
}

// Has implements fields.Fields.
func (f *Fields) Has(field string) bool {
	_, ok := f.lookup(field)
	return ok
}

// Get implements fields.Fields.
func (f *Fields) Get(field string) string {
	v, _ := f.lookup(field)
	return v
}

func appendString(buf []byte, s string) []byte {
	return append(binary.AppendUvarint(buf, uint64(len(s))), s...)
}

// cutString takes a string off what appendString wrote.
func cutString(s string) (head, rest string) {
	var n, shift uint
	i := 0
	for ; s[i] >= 0x80; i++ {
		n |= uint(s[i]&0x7f) << shift
		shift += 7
	}
	n |= uint(s[i]) << shift
	i++
	return s[i : i+int(n)], s[i+int(n):]
}
