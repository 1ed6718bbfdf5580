package pack

import (
	"iter"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/isthmus-dev/isthmus/pkg/cache/compact"
)

// texts are those that a head refers to by number. They are complete, and never
// change again, once the head has been read.
type texts struct{ known []string }

// cut takes a text off a part of a head that has been read without a mistake.
func (t *texts) cut(in string) (s, rest string) {
	r := reader{in: in}
	if n := r.number(); n > 0 {
		return t.known[n-1], r.in
	}
	s = r.text()
	return s, r.in
}

// headLabels is a label set that stays a part of a head: most readers never
// look at it, and those that do look once.
type headLabels struct {
	texts *texts
	part  string // keys and values by turns
	count int
}

var _ labels.Labels = (*headLabels)(nil)

// All yields keys and values in the order they were packed.
func (l *headLabels) All() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for rest := l.part; rest != ""; {
			var key, value string
			key, rest = l.texts.cut(rest)
			value, rest = l.texts.cut(rest)
			if !yield(key, value) {
				return
			}
		}
	}
}

// Lookup implements labels.Labels.
func (l *headLabels) Lookup(label string) (value string, exists bool) {
	for k, v := range l.All() {
		if k == label {
			return v, true
		}
	}
	return "", false
}

// Has implements labels.Labels.
func (l *headLabels) Has(label string) bool {
	_, ok := l.Lookup(label)
	return ok
}

// Get implements labels.Labels.
func (l *headLabels) Get(label string) string {
	v, _ := l.Lookup(label)
	return v
}

// Len is the number of labels.
func (l *headLabels) Len() int { return l.count }

// headFields are the values of selectable fields that stay a part of a head.
type headFields struct {
	texts *texts
	names []string
	part  string
}

var _ fields.Fields = (*headFields)(nil)

// Values yields the values in the order of their names.
func (f *headFields) Values() iter.Seq[string] {
	return func(yield func(string) bool) {
		for rest := f.part; rest != ""; {
			var value string
			if value, rest = f.texts.cut(rest); !yield(value) {
				return
			}
		}
	}
}

func (f *headFields) lookup(field string) (string, bool) {
	return compact.Lookup(f.names, f.Values(), field)
}

// Has implements fields.Fields.
func (f *headFields) Has(field string) bool {
	_, ok := f.lookup(field)
	return ok
}

// Get implements fields.Fields.
func (f *headFields) Get(field string) string {
	v, _ := f.lookup(field)
	return v
}
