package pack

import (
	"fmt"
	"sync/atomic"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// sizes is what is known of the objects of a block without reading them: a
// protobuf list says how long it is before its first item.
type sizes struct {
	lengths   []uint32     // of the objects' bytes
	metadata  atomic.Int64 // what FramedMetadata answers; zero where nobody has asked yet
	namespace bool         // all objects are in that of the first
}

// itemField is the number of the items in every list, and metadataField of the
// metadata in every object, of the API.
const (
	itemField     = 2
	metadataField = 1
)

func framed(number protowire.Number, n int) int {
	return protowire.SizeTag(number) + protowire.SizeBytes(n)
}

func (s *sizes) measure(objects []*cache.Object) {
	s.namespace, s.lengths = true, make([]uint32, len(objects))
	for i, o := range objects {
		s.lengths[i] = uint32(o.Body.Len()) //nolint:gosec // at most maxBody
		s.namespace = s.namespace && o.Key.Namespace == objects[0].Key.Namespace
	}
}

// framedMetadata sums up what is left of objects as items when only their
// metadata is.
func (p *Packer) framedMetadata(objects []*cache.Object) (total int64, err error) {
	if p.Encoding != cache.Protobuf {
		return 0, nil
	}
	for _, o := range objects {
		m, err := metadataOf(o.Raw())
		if err != nil {
			return 0, fmt.Errorf("metadata of %s: %w", o.Key, err)
		}
		total += int64(framed(itemField, framed(metadataField, len(m))))
	}
	return total, nil
}

// metadataOf is the ObjectMeta of an object.
func metadataOf(raw []byte) ([]byte, error) {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, raw[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if number == metadataField && kind == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(raw[n:])
			return v, nil
		}
		raw = raw[n+size:]
	}
	return nil, nil
}

// ID implements cache.Pack.
func (b *Block) ID() *cache.PackID { return b.id }

// Framed implements cache.Pack.
func (b *Block) Framed() (total int) {
	for _, n := range b.sizes.lengths {
		total += framed(itemField, int(n))
	}
	return total
}

// FramedMetadata implements cache.Pack.
func (b *Block) FramedMetadata() (int, error) {
	if n := b.sizes.metadata.Load(); n > 0 {
		return int(n), nil
	}
	n, err := b.packer.framedMetadata(b.Objects())
	if err == nil {
		b.sizes.metadata.Store(n)
	}
	return int(n), err
}

// AppendItems implements cache.Pack.
func (b *Block) AppendItems(dst []byte, metadata bool) ([]byte, error) {
	err := b.unpacked(func(rest []byte) error {
		for _, n := range b.sizes.lengths {
			object := rest[:n]
			rest = rest[n:]
			dst = protowire.AppendTag(dst, itemField, protowire.BytesType)
			if metadata {
				m, err := metadataOf(object)
				if err != nil {
					return err
				}
				dst = protowire.AppendVarint(dst, uint64(framed(metadataField, len(m)))) //nolint:gosec // a length
				dst = protowire.AppendTag(dst, metadataField, protowire.BytesType)
				object = m
			}
			dst = protowire.AppendBytes(dst, object)
		}
		return nil
	})
	return dst, err
}

// Namespace implements cache.Pack.
func (b *Block) Namespace() (namespace string, ok bool) {
	if !b.sizes.namespace {
		return "", false
	}
	b.ref.View(func(data []byte) {
		r := reader{in: alias(data[:b.head])}
		namespace = string([]byte(r.text()))
	})
	return namespace, true
}
