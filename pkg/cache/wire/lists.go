package wire

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// ListEdit replaces strings in messages that a path reaches through lists: the
// nth message whose field the last step names gets the nth value. A string that
// is not set stays so, an empty value keeps what is there.
type ListEdit struct {
	Path   Path
	Values []string
}

// Texts reads the strings at a path that leads through lists: one for every
// message that holds the last step, "" where it is not set. Paths that differ
// in their last step only give lists of equal length.
func Texts(enc cache.Encoding, raw []byte, p Path) (values []string, err error) {
	if enc == cache.JSON {
		last := len(p.JSON) - 1
		err = eachHolder(raw, span{0, len(raw)}, p.JSON[:last], func(s span) error {
			v, err := textJSON(s.of(raw), p.JSON[last:])
			values = append(values, v)
			return err
		})
		return values, err
	}
	return textsProto(values, raw, p.Proto)
}

func textsProto(values []string, msg []byte, path []int32) ([]string, error) {
	if len(path) == 1 {
		v, err := textProto(msg, path)
		return append(values, v), err
	}
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return nil, err
		}
		msg = rest
		if f.num != protowire.Number(path[0]) {
			continue
		}
		if f.typ != protowire.BytesType {
			return nil, malformed("field %d is no message", f.num)
		}
		if values, err = textsProto(values, f.val, path[1:]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// eachHolder calls fn with every object that a path leads to; arrays on the
// way count as their elements. What lies below a scalar is absent.
func eachHolder(raw []byte, at span, path []string, fn func(span) error) error {
	i := skipSpace(raw, at.from)
	switch {
	case i < at.to && raw[i] == '[':
		return eachItem(raw, at, func(s span) error { return eachHolder(raw, s, path, fn) })
	case i >= at.to || raw[i] != '{':
		return nil
	case len(path) == 0:
		return fn(at)
	}
	m, ok, err := find(raw, at, path[0])
	if err != nil || !ok {
		return err
	}
	return eachHolder(raw, m.value, path[1:], fn)
}

// listSplices are the edits of one list in a JSON text.
func listSplices(raw []byte, e ListEdit) (out []splice, err error) {
	last, n := len(e.Path.JSON)-1, 0
	err = eachHolder(raw, span{0, len(raw)}, e.Path.JSON[:last], func(s span) error {
		value := ""
		if n < len(e.Values) {
			value = e.Values[n]
		}
		n++
		m, ok, err := find(raw, s, e.Path.JSON[last])
		if v := m.value.of(raw); err == nil && ok && value != "" && len(v) > 2 && v[0] == '"' {
			out = append(out, splice{m.value, quote(value)})
		}
		return err
	})
	return out, err
}

// cursor is an edit on its way through a message.
type cursor struct {
	path   []int32
	value  string
	values []string // of a list; those that are still to come
	list   bool
}

func cursorsOf(edit Edit) []*cursor {
	if len(edit.Texts)+len(edit.Lists) == 0 {
		return nil
	}
	out := make([]*cursor, 0, len(edit.Texts)+len(edit.Lists))
	for _, e := range edit.Texts {
		out = append(out, &cursor{path: e.Path.Proto, value: e.Value})
	}
	for _, e := range edit.Lists {
		out = append(out, &cursor{path: e.Path.Proto, values: e.Values, list: true})
	}
	return out
}

// enter takes the next value of a list when the message that holds its last
// step opens at this depth.
func (c *cursor) enter(depth int) {
	if !c.list || depth != len(c.path)-1 {
		return
	}
	c.value = ""
	if len(c.values) > 0 {
		c.value, c.values = c.values[0], c.values[1:]
	}
}
