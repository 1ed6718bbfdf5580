package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// MaxFrame bounds one event of a member's watch.
const MaxFrame = 16 << 20

// Types of watch events.
const (
	TypeAdded    = "ADDED"
	TypeModified = "MODIFIED"
	TypeDeleted  = "DELETED"
	TypeBookmark = "BOOKMARK"
	TypeError    = "ERROR"
)

// Frame is one event of a watch. Object is in the encoding of the resource,
// without an envelope; for an ERROR it is a Status as DecodeStatus reads it.
// It is valid until the next call of Next.
type Frame struct {
	Type   string
	Object []byte
}

// Frames cuts the body of a watch into events without decoding objects.
type Frames struct {
	enc cache.Encoding
	r   *bufio.Reader
	buf bytes.Buffer
}

// NewFrames reads frames from a watch body in the given encoding.
func NewFrames(enc cache.Encoding, body io.Reader) *Frames {
	return &Frames{enc: enc, r: bufio.NewReaderSize(body, 64<<10)}
}

// Buffered says whether more bytes have already arrived: a burst goes on.
func (f *Frames) Buffered() bool { return f.r.Buffered() > 0 }

// Next returns the next event, or io.EOF at a clean end between two events.
func (f *Frames) Next() (Frame, error) {
	if f.enc == cache.JSON {
		return f.nextJSON()
	}
	return f.nextProto()
}

func (f *Frames) nextProto() (Frame, error) {
	var head [4]byte
	if _, err := io.ReadFull(f.r, head[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return Frame{}, io.EOF
		}
		return Frame{}, fmt.Errorf("frame header: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size > MaxFrame {
		return Frame{}, malformed("frame of %d bytes", size)
	}
	f.reset()
	// The buffer grows with what arrives, not with what the header claims.
	if n, err := io.Copy(&f.buf, io.LimitReader(f.r, size)); err != nil {
		return Frame{}, fmt.Errorf("frame: %w", err)
	} else if n < size {
		return Frame{}, fmt.Errorf("frame: %w", io.ErrUnexpectedEOF)
	}
	return cutProtoFrame(f.buf.Bytes())
}

func (f *Frames) reset() {
	if f.buf.Cap() > maxScratch {
		f.buf = bytes.Buffer{}
	}
	f.buf.Reset()
}

// cutProtoFrame reads metav1.WatchEvent{1: type, 2: RawExtension{1: raw}}.
func cutProtoFrame(msg []byte) (Frame, error) {
	var frame Frame
	for len(msg) > 0 {
		f, rest, err := nextField(msg)
		if err != nil {
			return Frame{}, err
		}
		msg = rest
		if f.num != 1 && f.num != 2 {
			continue
		}
		if f.typ != protowire.BytesType {
			return Frame{}, malformed("watch event field %d", f.num)
		}
		if f.num == 1 {
			frame.Type = eventType(f.val)
			continue
		}
		if frame.Object, _, err = single(f.val, 1); err != nil {
			return Frame{}, err
		}
	}
	if frame.Type == "" {
		return Frame{}, malformed("watch event of no known type")
	}
	if frame.Type == TypeError {
		return frame, nil
	}
	raw, _, _, err := Unwrap(frame.Object)
	if err != nil {
		return Frame{}, err
	}
	frame.Object = raw
	return frame, nil
}

// eventType maps to a constant so that frames allocate no string.
func eventType(b []byte) string {
	for _, t := range []string{TypeAdded, TypeModified, TypeDeleted, TypeBookmark, TypeError} {
		if string(b) == t {
			return t
		}
	}
	return ""
}

func (f *Frames) nextJSON() (Frame, error) {
	line, err := f.line()
	if err != nil {
		return Frame{}, err
	}
	if !json.Valid(line) {
		return Frame{}, malformed("watch event is no JSON")
	}
	all := span{0, len(line)}
	typ, ok, err := find(line, all, "type")
	if err != nil || !ok {
		return Frame{}, malformed("watch event of no type: %v", err)
	}
	obj, ok, err := find(line, all, "object")
	if err != nil || !ok {
		return Frame{}, malformed("watch event of no object: %v", err)
	}
	frame := Frame{Type: eventType(bytes.Trim(typ.value.of(line), `"`)), Object: obj.value.of(line)}
	if frame.Type == "" {
		return Frame{}, malformed("watch event of type %s", typ.value.of(line))
	}
	return frame, nil
}

// line reads up to the next newline, skipping empty lines.
func (f *Frames) line() ([]byte, error) {
	f.reset()
	for {
		part, err := f.r.ReadSlice('\n')
		if f.buf.Len()+len(part) > MaxFrame {
			return nil, malformed("frame of more than %d bytes", MaxFrame)
		}
		f.buf.Write(part)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
		case err == nil:
			if len(bytes.TrimSpace(f.buf.Bytes())) > 0 {
				return f.buf.Bytes(), nil
			}
			f.buf.Reset()
		case errors.Is(err, io.EOF) && len(bytes.TrimSpace(f.buf.Bytes())) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF):
			return f.buf.Bytes(), nil
		default:
			return nil, fmt.Errorf("frame: %w", err)
		}
	}
}
