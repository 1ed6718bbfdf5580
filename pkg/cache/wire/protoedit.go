package wire

import (
	"bytes"
	"slices"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// scratch holds buffers in which a message is built before its exact copy is
// made; large ones are not kept.
var scratch = sync.Pool{New: func() any { b := make([]byte, 0, 16<<10); return &b }}

const maxScratch = 1 << 20

func rewriteProto(raw []byte, edit Edit) ([]byte, error) {
	buf := scratch.Get().(*[]byte)
	out, err := appendObject((*buf)[:0], raw, edit)
	if err != nil {
		scratch.Put(buf)
		return nil, err
	}
	result := bytes.Clone(out)
	if cap(out) <= maxScratch {
		*buf = out[:0]
		scratch.Put(buf)
	}
	return result, nil
}

// appendObject writes the message with its metadata first, then its other
// fields in their order.
func appendObject(out, raw []byte, edit Edit) ([]byte, error) {
	meta, _, err := single(raw, metaField)
	if err != nil {
		return nil, err
	}
	out = protowire.AppendTag(out, metaField, protowire.BytesType)
	out, err = appendMessage(out, func(out []byte) ([]byte, error) { return appendMeta(out, meta, edit) })
	if err != nil {
		return nil, err
	}
	cursors := cursorsOf(edit)
	for len(raw) > 0 {
		f, rest, err := nextField(raw)
		if err != nil {
			return nil, err
		}
		raw = rest
		if f.num == metaField {
			continue
		}
		if out, err = appendTexts(out, f, cursors, 0); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// appendMessage writes the length of what body appends before it. Room for a
// five-byte length is made first and closed afterwards.
func appendMessage(out []byte, body func([]byte) ([]byte, error)) ([]byte, error) {
	const room = 5
	start := len(out)
	out, err := body(append(out, make([]byte, room)...))
	if err != nil {
		return nil, err
	}
	size := len(out) - start - room
	n := protowire.SizeVarint(uint64(size))
	if n > room {
		return nil, malformed("message of %d bytes", size)
	}
	copy(out[start+n:], out[start+room:])
	protowire.AppendVarint(out[start:start], uint64(size))
	return out[:start+n+size], nil
}

// metaPart is what replaces all fields of one number in the metadata.
type metaPart struct {
	num    protowire.Number
	append func([]byte) []byte
}

func appendMeta(out, meta []byte, edit Edit) ([]byte, error) {
	parts, err := metaParts(meta, edit)
	if err != nil {
		return nil, err
	}
	replaced := func(num protowire.Number) bool {
		return slices.ContainsFunc(parts, func(p metaPart) bool { return p.num == num })
	}
	// Parts go before the first kept field with a larger number: encoders
	// write in ascending order, and so the result is in their order again.
	next, owner := 0, 0
	for len(meta) > 0 {
		f, rest, err := nextField(meta)
		if err != nil {
			return nil, err
		}
		meta = rest
		for next < len(parts) && parts[next].num < f.num {
			out = parts[next].append(out)
			next++
		}
		if replaced(f.num) {
			continue
		}
		if f.num == metaOwners && len(edit.Owners) > 0 {
			if out, err = appendOwner(out, f, edit.Owners, owner); err != nil {
				return nil, err
			}
			owner++
			continue
		}
		out = append(out, f.full...)
	}
	for ; next < len(parts); next++ {
		out = parts[next].append(out)
	}
	return out, nil
}

func metaParts(meta []byte, edit Edit) ([]metaPart, error) {
	parts := make([]metaPart, 0, 4)
	if edit.Name != "" {
		parts = append(parts, textPart(metaName, edit.Name))
	}
	if edit.ResourceVersion != "" {
		parts = append(parts, textPart(metaRV, edit.ResourceVersion))
	}
	for _, m := range []struct {
		num protowire.Number
		set []Pair
		del []string
	}{{metaLabels, edit.SetLabels, edit.DeleteLabels}, {metaAnnotations, edit.SetAnnotations, edit.DeleteAnnotations}} {
		if len(m.set)+len(m.del) == 0 {
			continue
		}
		pairs, err := readPairs(meta, m.num)
		if err != nil {
			return nil, err
		}
		pairs = editPairs(pairs, m.set, m.del)
		parts = append(parts, metaPart{m.num, func(out []byte) []byte { return appendPairs(out, m.num, pairs) }})
	}
	return parts, nil
}

func textPart(num protowire.Number, value string) metaPart {
	return metaPart{num, func(out []byte) []byte { return appendText(out, num, value) }}
}

func appendText(out []byte, num protowire.Number, value string) []byte {
	return protowire.AppendString(protowire.AppendTag(out, num, protowire.BytesType), value)
}

func readPairs(meta []byte, num protowire.Number) (pairs []Pair, err error) {
	for len(meta) > 0 {
		f, rest, err := nextField(meta)
		if err != nil {
			return nil, err
		}
		meta = rest
		if f.num == num {
			if pairs, err = appendEntry(pairs, f); err != nil {
				return nil, err
			}
		}
	}
	return sortPairs(pairs), nil
}

func appendPairs(out []byte, num protowire.Number, pairs []Pair) []byte {
	for _, p := range pairs {
		size := protowire.SizeTag(1) + protowire.SizeBytes(len(p.Key)) + protowire.SizeTag(2) + protowire.SizeBytes(len(p.Value))
		out = protowire.AppendTag(out, num, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(size))
		out = appendText(out, 1, p.Key)
		out = appendText(out, 2, p.Value)
	}
	return out
}

func appendOwner(out []byte, f field, edits []OwnerEdit, index int) ([]byte, error) {
	if f.typ != protowire.BytesType {
		return nil, malformed("ownerReferences is no message")
	}
	i := slices.IndexFunc(edits, func(e OwnerEdit) bool { return e.Index == index })
	if i < 0 {
		return append(out, f.full...), nil
	}
	out = protowire.AppendTag(out, metaOwners, protowire.BytesType)
	return appendMessage(out, func(out []byte) ([]byte, error) {
		return appendOwnerFields(out, f.val, edits[i])
	})
}

// appendOwnerFields writes name and uid where an encoder has them.
func appendOwnerFields(out, msg []byte, edit OwnerEdit) ([]byte, error) {
	written := false
	put := func() {
		if !written {
			out = appendText(out, ownerName, edit.Name)
			out = appendText(out, ownerUID, edit.UID)
			written = true
		}
	}
	for len(msg) > 0 {
		e, rest, err := nextField(msg)
		if err != nil {
			return nil, err
		}
		msg = rest
		if e.num > ownerUID {
			put()
		}
		if e.num != ownerName && e.num != ownerUID {
			out = append(out, e.full...)
		}
	}
	put()
	return out, nil
}

// appendTexts writes one field, with the edits applied that pass through it at
// this depth.
func appendTexts(out []byte, f field, edits []*cursor, depth int) ([]byte, error) {
	var through []*cursor
	for _, e := range edits {
		if depth >= len(e.path) || e.path[depth] != int32(f.num) {
			continue
		}
		if f.typ != protowire.BytesType {
			return nil, malformed("field %d is no string", f.num)
		}
		if depth == len(e.path)-1 {
			if len(f.val) == 0 || e.list && e.value == "" {
				return append(out, f.full...), nil
			}
			return appendText(out, f.num, e.value), nil
		}
		through = append(through, e)
	}
	if len(through) == 0 {
		return append(out, f.full...), nil
	}
	for _, e := range through {
		e.enter(depth + 1)
	}
	out = protowire.AppendTag(out, f.num, protowire.BytesType)
	return appendMessage(out, func(out []byte) ([]byte, error) {
		for msg := f.val; len(msg) > 0; {
			inner, rest, err := nextField(msg)
			if err != nil {
				return nil, err
			}
			msg = rest
			if out, err = appendTexts(out, inner, through, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	})
}
