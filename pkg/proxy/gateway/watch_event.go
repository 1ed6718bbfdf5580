package gateway

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"

	"github.com/isthmus-dev/isthmus/pkg/cache"
	"github.com/isthmus-dev/isthmus/pkg/cache/wire"
)

// watchType is the type of an event as a client sees it.
type watchType uint8

const (
	eventAdded watchType = iota
	eventModified
	eventDeleted
	// eventLeft is sent as DELETED: the object still exists but no longer
	// matches, so that its bytes are those of the state before.
	eventLeft
	eventBookmark
	eventError
	eventNone
)

var watchTypeNames = [...]string{"ADDED", "MODIFIED", "DELETED", "DELETED", "BOOKMARK", "ERROR", ""}

// transition says what an event is to a client that sees only the selection.
// Bookmarks and errors are protocol and never come here.
func transition(s *selection, e *cache.Event) watchType {
	now := s.matches(e.Object)
	if e.Type == cache.Deleted {
		if e.Prev != nil {
			now = s.matches(e.Prev)
		}
		if now {
			return eventDeleted
		}
		return eventNone
	}
	before := e.Type == cache.Modified && e.Prev != nil && s.matches(e.Prev)
	switch {
	case now && !before && (e.Type == cache.Added || e.Prev != nil):
		return eventAdded
	case now:
		return eventModified
	case before:
		return eventLeft
	}
	return eventNone
}

// eventEncoder frames events in one negotiated form. The first event of a
// Table stream has the column definitions, the others have not.
type eventEncoder struct {
	kind        *kind
	media       string
	first, rest encoder
	sent        bool
	bare        bool // protobuf without its length, for messages
	// memoKeys of the events, by whether it is the first, and by type.
	memoKeys [2][eventNone]string
	scratch  []byte
}

func newEventEncoder(k *kind, f form, tables *tableMaker) *eventEncoder {
	e := &eventEncoder{kind: k, media: f.media, first: encoderFor(k, f, tables)}
	e.rest = e.first
	if f.as == asTable {
		f.table.NoHeaders = true
		e.rest = encoderFor(k, f, tables)
	}
	for i, enc := range []encoder{e.first, e.rest} {
		for t := range eventNone {
			e.memoKeys[i][t] = fmt.Sprintf("%s|%d", enc.id(), t)
		}
	}
	return e
}

// asMessages leaves out the framing: a message has its own bounds. What is
// kept of an event is then other bytes, under other keys.
func (e *eventEncoder) asMessages() {
	e.bare = true
	for i := range e.memoKeys {
		for t := range e.memoKeys[i] {
			e.memoKeys[i][t] += "|message"
		}
	}
}

func (e *eventEncoder) contentType() string {
	if e.media == runtime.ContentTypeProtobuf {
		return e.media + ";stream=watch"
	}
	return e.media
}

// event gives the bytes of an event for a selection, nil when it is not for
// this client. They are made once for all watchers of the same form and must
// not be written to.
func (e *eventEncoder) event(s *selection, ev *cache.Event) ([]byte, error) {
	t := transition(s, ev)
	if t == eventNone {
		return nil, nil
	}
	which := 0
	enc := e.first
	if e.sent {
		which, enc = 1, e.rest
	}
	e.sent = true
	return ev.Memo.Encoded(e.memoKeys[which][t], func() ([]byte, error) {
		o := ev.Object
		if t == eventLeft {
			var err error
			if o, err = e.left(ev); err != nil {
				return nil, err
			}
		}
		return e.frame(nil, enc, t, o)
	})
}

// left is the state before an event with the RV of the event: what a client
// sees of an object that ceases to match.
func (e *eventEncoder) left(ev *cache.Event) (*cache.Object, error) {
	o := *ev.Prev
	raw, err := wire.Rewrite(e.kind.encoding, o.Raw(), wire.Edit{ResourceVersion: formatRV(ev.RV)})
	if err != nil {
		return nil, fmt.Errorf("stamping %s: %w", o.Key, err)
	}
	o.Body, o.RV = cache.Bytes(raw), ev.RV
	return &o, nil
}

// appendEvent frames an object that is not in the log: an initial event or a
// bookmark.
func (e *eventEncoder) appendEvent(dst []byte, t watchType, o *cache.Object) ([]byte, error) {
	enc := e.first
	if e.sent {
		enc = e.rest
	}
	e.sent = true
	return e.frame(dst, enc, t, o)
}

func (e *eventEncoder) frame(dst []byte, enc encoder, t watchType, o *cache.Object) ([]byte, error) {
	b, err := enc.object(e.scratch[:0], o)
	if err != nil {
		return nil, err
	}
	e.scratch = b[:0]
	if cap(b) > maxScratch {
		e.scratch = nil
	}
	return e.appendFrame(dst, t, b), nil
}

// maxScratch is the largest buffer that an idle watch keeps.
const maxScratch = 64 << 10

// Field numbers of metav1.WatchEvent and runtime.RawExtension.
const (
	watchEventType   = 1
	watchEventObject = 2
	rawExtensionRaw  = 1
)

func (e *eventEncoder) appendFrame(dst []byte, t watchType, object []byte) []byte {
	name := watchTypeNames[t]
	if e.media != runtime.ContentTypeProtobuf {
		dst = append(dst, `{"type":"`...)
		dst = append(dst, name...)
		dst = append(dst, `","object":`...)
		dst = append(dst, bytes.TrimSuffix(object, []byte("\n"))...)
		return append(dst, "}\n"...)
	}
	extension := protowire.SizeTag(rawExtensionRaw) + protowire.SizeBytes(len(object))
	size := protowire.SizeTag(watchEventType) + protowire.SizeBytes(len(name)) +
		protowire.SizeTag(watchEventObject) + protowire.SizeBytes(extension)
	if !e.bare {
		dst = binary.BigEndian.AppendUint32(dst, uint32(size)) //nolint:gosec // an object is far below 4 GiB
	}
	dst = protowire.AppendTag(dst, watchEventType, protowire.BytesType)
	dst = protowire.AppendString(dst, name)
	dst = protowire.AppendTag(dst, watchEventObject, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(extension))
	dst = protowire.AppendTag(dst, rawExtensionRaw, protowire.BytesType)
	return protowire.AppendBytes(dst, object)
}

// failure is the ERROR event for an error that has a Status.
func (e *eventEncoder) failure(err error) []byte {
	status := responsewriters.ErrorToAPIStatus(err)
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	var body []byte
	var failed error
	if e.media == runtime.ContentTypeProtobuf {
		if body, failed = status.Marshal(); failed == nil {
			body = append(appendEnvelope(nil, status.GroupVersionKind(), len(body)), body...)
			body = append(body, envelopeEnd...)
		}
	} else {
		body, failed = json.Marshal(status)
	}
	if failed != nil {
		return nil // a Status of strings always encodes
	}
	return e.appendFrame(nil, eventError, body)
}
