package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// splice replaces a part of a JSON text.
type splice struct {
	at   span
	with []byte
}

func rewriteJSON(raw []byte, edit Edit) ([]byte, error) {
	if !json.Valid(raw) {
		return nil, malformed("no JSON")
	}
	metadata, ok, err := find(raw, span{0, len(raw)}, "metadata")
	if err != nil {
		return nil, err
	}
	if !ok || isNull(raw, metadata.value) {
		return nil, malformed("no metadata")
	}
	splices, err := metaSplices(raw, metadata.value, edit)
	if err != nil {
		return nil, err
	}
	for _, t := range edit.Texts {
		at, ok, err := locate(raw, t.Path.JSON)
		if err != nil {
			return nil, err
		}
		if v := at.of(raw); ok && len(v) > 2 && v[0] == '"' {
			splices = append(splices, splice{at, quote(t.Value)})
		}
	}
	for _, l := range edit.Lists {
		more, err := listSplices(raw, l)
		if err != nil {
			return nil, err
		}
		splices = append(splices, more...)
	}
	return applySplices(raw, splices)
}

func applySplices(raw []byte, splices []splice) ([]byte, error) {
	slices.SortStableFunc(splices, func(a, b splice) int { return cmp.Compare(a.at.from, b.at.from) })
	size, last := len(raw), 0
	for _, s := range splices {
		if s.at.from < last {
			return nil, malformed("edits overlap at %d", s.at.from)
		}
		size += len(s.with) - (s.at.to - s.at.from)
		last = s.at.to
	}
	out := make([]byte, 0, size)
	last = 0
	for _, s := range splices {
		out = append(out, raw[last:s.at.from]...)
		out = append(out, s.with...)
		last = s.at.to
	}
	return append(out, raw[last:]...), nil
}

// metaSplices edits the metadata object: values that are there are replaced,
// the others go in behind its opening brace in a fixed order.
func metaSplices(raw []byte, metadata span, edit Edit) ([]splice, error) {
	var out []splice
	var insert []byte
	put := func(key string, value []byte) error {
		m, ok, err := find(raw, metadata, key)
		switch {
		case err != nil:
			return err
		case ok:
			out = append(out, splice{m.value, value})
		default:
			insert = append(append(append(insert, quote(key)...), ':'), value...)
			insert = append(insert, ',')
		}
		return nil
	}
	if edit.Name != "" {
		if err := put("name", quote(edit.Name)); err != nil {
			return nil, err
		}
	}
	if edit.ResourceVersion != "" {
		if err := put("resourceVersion", quote(edit.ResourceVersion)); err != nil {
			return nil, err
		}
	}
	for _, e := range []struct {
		key string
		set []Pair
		del []string
	}{{"labels", edit.SetLabels, edit.DeleteLabels}, {"annotations", edit.SetAnnotations, edit.DeleteAnnotations}} {
		if len(e.set)+len(e.del) == 0 {
			continue
		}
		value, err := editedMap(raw, metadata, e.key, e.set, e.del)
		if err != nil {
			return nil, err
		}
		if err := put(e.key, value); err != nil {
			return nil, err
		}
	}
	if len(edit.Owners) > 0 {
		owners, err := ownerSplices(raw, metadata, edit.Owners)
		if err != nil {
			return nil, err
		}
		out = append(out, owners...)
	}
	if len(insert) > 0 {
		open := skipSpace(raw, metadata.from) + 1
		if i := skipSpace(raw, open); i < metadata.to && raw[i] == '}' {
			insert = bytes.TrimSuffix(insert, []byte(","))
		}
		out = append(out, splice{span{open, open}, insert})
	}
	return out, nil
}

func editedMap(raw []byte, metadata span, key string, set []Pair, del []string) ([]byte, error) {
	var pairs []Pair
	m, ok, err := find(raw, metadata, key)
	if err != nil {
		return nil, err
	}
	if ok && !isNull(raw, m.value) {
		if pairs, err = pairsJSON(m.value.of(raw)); err != nil {
			return nil, malformed("metadata.%s: %v", key, err)
		}
	}
	out := []byte{'{'}
	for i, p := range editPairs(pairs, set, del) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, quote(p.Key)...), ':'), quote(p.Value)...)
	}
	return append(out, '}'), nil
}

func ownerSplices(raw []byte, metadata span, edits []OwnerEdit) (out []splice, err error) {
	m, ok, err := find(raw, metadata, "ownerReferences")
	if err != nil || !ok || isNull(raw, m.value) {
		return nil, err
	}
	index := -1
	err = eachItem(raw, m.value, func(s span) error {
		index++
		i := slices.IndexFunc(edits, func(e OwnerEdit) bool { return e.Index == index })
		if i < 0 {
			return nil
		}
		for _, e := range []struct{ key, value string }{{"name", edits[i].Name}, {"uid", edits[i].UID}} {
			v, ok, err := find(raw, s, e.key)
			if err != nil {
				return err
			}
			if ok {
				out = append(out, splice{v.value, quote(e.value)})
			}
		}
		return nil
	})
	return out, err
}

// quote writes a JSON string without escaping what only HTML needs escaped.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always encodes, and a buffer takes all
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// EachListItem calls fn with the bytes of every item of a list body and
// returns the list's resourceVersion and continue token. JSON items get the
// apiVersion and kind that typed lists leave out. The bytes alias body.
func EachListItem(enc cache.Encoding, body []byte, apiVersion, kind string, fn func(raw []byte) error) (rv, cont string, err error) {
	if enc == cache.JSON {
		return eachListItemJSON(body, apiVersion, kind, fn)
	}
	return eachListItemProto(body, fn)
}

func eachListItemProto(body []byte, fn func([]byte) error) (rv, cont string, err error) {
	msg, _, _, err := Unwrap(body)
	if err != nil {
		return "", "", err
	}
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return "", "", err
		}
		msg = rest
		switch f.num {
		case 1:
			if rv, err = textProto(f.val, []int32{2}); err == nil {
				cont, err = textProto(f.val, []int32{3})
			}
		case 2:
			err = fn(f.val)
		}
		if err != nil {
			return "", "", err
		}
	}
	return rv, cont, nil
}

func eachListItemJSON(body []byte, apiVersion, kind string, fn func([]byte) error) (rv, cont string, err error) {
	if !json.Valid(body) {
		return "", "", malformed("no JSON")
	}
	all := span{0, len(body)}
	if rv, err = textJSON(body, []string{"metadata", "resourceVersion"}); err != nil {
		return "", "", err
	}
	if cont, err = textJSON(body, []string{"metadata", "continue"}); err != nil {
		return "", "", err
	}
	items, ok, err := find(body, all, "items")
	if err != nil || !ok || isNull(body, items.value) {
		return rv, cont, err
	}
	err = eachItem(body, items.value, func(s span) error {
		item := s.of(body)
		if _, ok, err := find(item, span{0, len(item)}, "kind"); err != nil {
			return err
		} else if !ok {
			item = withTypeMeta(item, apiVersion, kind)
		}
		return fn(item)
	})
	return rv, cont, err
}

func withTypeMeta(item []byte, apiVersion, kind string) []byte {
	head := append([]byte(`{"kind":`), quote(kind)...)
	head = append(append(head, `,"apiVersion":`...), quote(apiVersion)...)
	rest := item[1:]
	if i := skipSpace(rest, 0); i < len(rest) && rest[i] != '}' {
		head = append(head, ',')
	}
	return append(head, rest...)
}
