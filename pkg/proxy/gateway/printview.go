package gateway

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// printView says which fields of a protobuf message a printer reads, by number.
// Decoding a Pod in full costs far more than printing it, so the printer is
// given an object that was decoded from these fields alone.
type printView map[protowire.Number]printView

// whole keeps a field with everything in it.
var whole = printView(nil)

// podView is what the printer of Pods reads. Of the containers only their
// number counts, of the init containers which of them are sidecars. Conversion
// makes status.podIPs agree with status.podIP, so both are kept.
var podView = printView{
	1: {1: whole, 3: whole, 8: whole, 9: whole}, // metadata: name, namespace, creationTimestamp, deletionTimestamp
	2: { // spec
		2:  printView{},           // containers
		10: whole,                 // nodeName
		20: {1: whole, 24: whole}, // initContainers: name, restartPolicy
		28: whole,                 // readinessGates
	},
	3: { // status
		1: whole, 2: whole, 4: whole, 6: whole, 11: whole, 12: whole, // phase, conditions, reason, podIP, nominatedNodeName, podIPs
		8: containerStatusView, 10: containerStatusView, // containerStatuses, initContainerStatuses
	},
}

// containerStatusView: name, state, lastState, ready, restartCount, started.
var containerStatusView = printView{1: whole, 2: whole, 3: whole, 4: whole, 5: whole, 9: whole}

// printViewOf is nil for a kind whose printer is given everything.
func printViewOf(gvk schema.GroupVersionKind) printView {
	if gvk == corev1.SchemeGroupVersion.WithKind("Pod") {
		return podView
	}
	return nil
}

// viewLength is how many bytes the length of a cut message takes: it is
// written after the message, so it is a varint padded to a fixed size.
const viewLength = 4

// appendTo appends the fields of the view in the order of raw.
func (v printView) appendTo(dst, raw []byte) ([]byte, error) {
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil, fmt.Errorf("cutting a message: %w", protowire.ParseError(n))
		}
		size := protowire.ConsumeFieldValue(number, kind, raw[n:])
		if size < 0 {
			return nil, fmt.Errorf("cutting field %d: %w", number, protowire.ParseError(size))
		}
		size += n
		inner, keep := v[number]
		switch {
		case !keep:
		case inner == nil || kind != protowire.BytesType:
			dst = append(dst, raw[:size]...)
		default:
			dst = append(dst, raw[:n]...)
			at := len(dst)
			dst = append(dst, make([]byte, viewLength)...)
			message, _ := protowire.ConsumeBytes(raw[n:size])
			var err error
			if dst, err = inner.appendTo(dst, message); err != nil {
				return nil, err
			}
			putLength(dst[at:at+viewLength], len(dst)-at-viewLength)
		}
		raw = raw[size:]
	}
	return dst, nil
}

// putLength writes a varint of exactly len(to) bytes. Objects are far smaller
// than the 256 MiB that fit.
func putLength(to []byte, length int) {
	for i := range to {
		to[i] = byte(length>>(7*i))&0x7f | 0x80
	}
	to[len(to)-1] &= 0x7f
}
