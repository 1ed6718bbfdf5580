package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// listMetrics count what LISTs cost.
type listMetrics struct {
	lists, objects, sent, encoding, waiting *prometheus.CounterVec
}

func newListMetrics() listMetrics {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "isthmus", Subsystem: "gateway", Name: name, Help: help}, labels)
	}
	return listMetrics{
		lists:    vec("lists_total", "Long LISTs that were answered in full, by form.", "resource", "form", "gzip"),
		objects:  vec("list_objects_total", "Objects in the answers of long LISTs.", "resource"),
		sent:     vec("list_bytes_total", "Bytes of the answers of long LISTs, as they were sent.", "resource"),
		encoding: vec("list_encoding_seconds_total", "Time in which long LISTs held a seat to encode.", "resource"),
		waiting:  vec("list_waiting_seconds_total", "Time in which long LISTs waited for a seat.", "resource"),
	}
}

var (
	piecesDesc     = prometheus.NewDesc("isthmus_gateway_pieces", "Encoded parts of lists that are kept.", nil, nil)
	pieceBytesDesc = prometheus.NewDesc("isthmus_gateway_piece_bytes", "Bytes of encoded parts of lists that are kept.", nil, nil)
	pieceHitsDesc  = prometheus.NewDesc("isthmus_gateway_piece_hits_total", "Parts of lists that were kept when a LIST needed them.", nil, nil)
	pieceMissDesc  = prometheus.NewDesc("isthmus_gateway_piece_misses_total", "Parts of lists that had to be encoded.", nil, nil)
)

var _ prometheus.Collector = &Handler{}

func (m listMetrics) all() []*prometheus.CounterVec {
	return []*prometheus.CounterVec{m.lists, m.objects, m.sent, m.encoding, m.waiting}
}

// Describe implements prometheus.Collector.
func (h *Handler) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{piecesDesc, pieceBytesDesc, pieceHitsDesc, pieceMissDesc} {
		ch <- d
	}
	for _, v := range h.listMetrics.all() {
		v.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (h *Handler) Collect(ch chan<- prometheus.Metric) {
	n := h.pieces.Counts()
	ch <- prometheus.MustNewConstMetric(piecesDesc, prometheus.GaugeValue, float64(n.Pieces))
	ch <- prometheus.MustNewConstMetric(pieceBytesDesc, prometheus.GaugeValue, float64(n.Bytes))
	ch <- prometheus.MustNewConstMetric(pieceHitsDesc, prometheus.CounterValue, float64(n.Hits))
	ch <- prometheus.MustNewConstMetric(pieceMissDesc, prometheus.CounterValue, float64(n.Misses))
	for _, v := range h.listMetrics.all() {
		v.Collect(ch)
	}
}

// observe counts a LIST that has come to its end.
func (m listMetrics) observe(resource string, f form, x *listWriter) {
	media := map[string]string{"application/json": "json", "application/yaml": "yaml", "application/vnd.kubernetes.protobuf": "protobuf"}[f.media]
	switch f.as {
	case asTable:
		media += " table"
	case asPartial:
		media += " metadata"
	case asObject:
	}
	m.lists.WithLabelValues(resource, media, strconv.FormatBool(x.gzip != nil)).Inc()
	m.objects.WithLabelValues(resource).Add(float64(x.items))
	m.sent.WithLabelValues(resource).Add(float64(x.sent))
	m.encoding.WithLabelValues(resource).Add(x.encoding.Seconds())
	m.waiting.WithLabelValues(resource).Add(x.waiting.Seconds())
}

// stopwatch adds the time until it is called to a duration.
func stopwatch(to *time.Duration) func() {
	start := time.Now()
	return func() { *to += time.Since(start) }
}
