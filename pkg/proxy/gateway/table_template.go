package gateway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// The rows of a Table are kept as templates: all of a row stays but for the ages
// in it. In the place of an age stands a byte that no JSON has, and the moment
// that it counts from.

const ageMark = 0xff

// errNoTemplate says that a row cannot be kept: it shows a time that is not
// known from which moment it counts.
var errNoTemplate = errors.New("row has no template")

func appendAge(dst []byte, since time.Time) []byte {
	return binary.LittleEndian.AppendUint64(append(dst, ageMark), uint64(since.Unix())) //nolint:gosec // and back
}

// fillIn appends rows with the ages of a moment.
func fillIn(dst, template []byte, now time.Time) []byte {
	for {
		i := bytes.IndexByte(template, ageMark)
		if i < 0 {
			return append(dst, template...)
		}
		dst = append(dst, template[:i]...)
		since := time.Unix(int64(binary.LittleEndian.Uint64(template[i+1:])), 0) //nolint:gosec // as it was written
		dst = append(dst, inJSON.Replace(duration.HumanDuration(now.Sub(since)))...)
		template = template[i+9:]
	}
}

// inJSON writes the text of an age as JSON has it.
var inJSON = strings.NewReplacer("<", `\u003c`, ">", `\u003e`)

// hasTemplates says whether the rows of a kind show no other times than podTimes
// gives.
func hasTemplates(k *kind) bool { return k.gvk == corev1.SchemeGroupVersion.WithKind("Pod") }

// podTimes are the moments that the row of a Pod may count from: when it was
// made, and when its containers ended.
func podTimes(pod *corev1.Pod) []metav1.Time {
	times := []metav1.Time{pod.CreationTimestamp}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, s := range list {
			if last := s.LastTerminationState.Terminated; last != nil {
				times = append(times, last.FinishedAt)
			}
		}
	}
	return times
}

// agePlaces says which cells of a row show an age.
type agePlaces struct{ created, restarted int }

func (t *tableMaker) agePlaces(k *kind) (p agePlaces, ok bool) {
	columns, err := t.columns(k)
	if err != nil {
		return p, false
	}
	p = agePlaces{created: -1, restarted: -1}
	for i, c := range columns {
		switch c.Name {
		case "Age":
			p.created = i
		case "Restarts":
			p.restarted = i
		}
	}
	return p, p.created >= 0 && p.restarted >= 0
}

// appendTemplate appends the template of the row of an object.
func (v tableValue) appendTemplate(dst []byte, o *cache.Object, places agePlaces) ([]byte, error) {
	cells, conditions, err := v.tables.cells(v.kind, o)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	obj, err := v.kind.decodePrinted(o)
	if err != nil {
		return nil, err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, errNoTemplate
	}
	times := podTimes(pod)
	dst = append(dst, `{"cells":`...)
	separator := byte('[')
	for i, cell := range cells {
		dst = append(dst, separator)
		separator = ','
		switch text, _ := cell.(string); {
		case i == places.created && !times[0].IsZero():
			dst, err = appendAgeCell(dst, "", text, "", times[:1], now)
		case i == places.restarted && strings.HasSuffix(text, restartedEnd):
			count, age, _ := strings.Cut(strings.TrimSuffix(text, restartedEnd), restartedBegin)
			dst, err = appendAgeCell(dst, count+restartedBegin, age, restartedEnd, times[1:], now)
		default:
			dst, err = appendStatic(dst, cell)
		}
		if err != nil {
			return nil, err
		}
	}
	from := len(dst)
	dst, err = v.appendRowEnd(append(dst, ']'), o, conditions)
	if err == nil && bytes.IndexByte(dst[from:], ageMark) >= 0 {
		return nil, errNoTemplate // it is not UTF-8
	}
	return dst, err
}

// What stands around the age of the last restart.
const (
	restartedBegin = " ("
	restartedEnd   = " ago)"
)

// appendAgeCell appends a cell whose age counts from the only one of some
// moments that it can count from.
func appendAgeCell(dst []byte, before, text, after string, times []metav1.Time, now time.Time) ([]byte, error) {
	var since metav1.Time
	for _, t := range times {
		if duration.HumanDuration(now.Sub(t.Time)) != text || t.Equal(&since) {
			continue
		}
		if !since.IsZero() {
			return nil, errNoTemplate
		}
		since = t
	}
	if since.IsZero() {
		return nil, errNoTemplate
	}
	dst = append(append(dst, '"'), before...)
	return append(append(appendAge(dst, since.Time), after...), '"'), nil
}

func appendStatic(dst []byte, v any) ([]byte, error) {
	from := len(dst)
	dst, err := appendMarshal(dst, v)
	if err == nil && bytes.IndexByte(dst[from:], ageMark) >= 0 {
		return nil, errNoTemplate
	}
	return dst, err
}

// pieces: of a kind whose printers may show any time, no row is kept.
func (v tableValue) pieces(p piecePlan) piecePlan {
	if !hasTemplates(v.kind) {
		return piecePlan{}
	}
	places, ok := v.tables.agePlaces(v.kind)
	if !ok {
		return piecePlan{}
	}
	p.fillIn = fillIn
	p.items = func(dst []byte, pack cache.Pack) (_ []byte, err error) {
		for _, o := range pack.Objects() {
			if dst, err = v.appendTemplate(append(dst, ','), o, places); err != nil {
				return nil, err
			}
		}
		return dst, nil
	}
	return p
}
