package membercache

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/isthmus-dev/isthmus/pkg/cache"
)

// counters count what happens to the feeds.
type counters struct {
	relists, resumes, dropped, compared *prometheus.CounterVec
	different                           *prometheus.GaugeVec
}

func newCounters() counters {
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "isthmus", Subsystem: "cache", Name: name, Help: help}, labels)
	}
	return counters{
		relists:  vec("feed_relists_total", "Complete states read from a source.", "cluster", "resource"),
		resumes:  vec("feed_resumes_total", "Watches of a source that went on where the last one ended.", "cluster", "resource"),
		dropped:  vec("dropped_objects_total", "Objects of sources that could not be read or served.", "resource"),
		compared: vec("comparisons_total", "Comparisons with what a source has: equal, different or failed.", "cluster", "resource", "outcome"),
		different: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: "isthmus", Subsystem: "cache", Name: "different_objects",
			Help: "Objects that were not as their source has them when they were compared last.",
		}, []string{"cluster", "resource"}),
	}
}

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName("isthmus", "cache", name), help, labels, nil)
}

var (
	objectsDesc   = desc("objects", "Objects that are served.", "cluster", "resource")
	bytesDesc     = desc("object_bytes", "Bytes of the objects that are served.", "resource")
	historyDesc   = desc("history_bytes", "Bytes that the history holds.", "resource")
	eventsDesc    = desc("history_events", "Events in the history.", "resource")
	watchersDesc  = desc("watchers", "Open watches.", "resource")
	expiredDesc   = desc("expired_total", "Readers who asked for what the history no longer has.", "resource")
	connectedDesc = desc("source_connected", "1 where the feed of a source is live.", "cluster", "resource")
	syncedDesc    = desc("source_synced", "1 where a complete state of a source was loaded.", "cluster", "resource")
	sinceDesc     = desc("source_since_timestamp_seconds", "When the feed of a source became live, or stopped being so.", "cluster", "resource")
	headDesc      = desc("head", "Last resourceVersion of a collection.", "resource")
	packedDesc    = desc("packed_bytes", "Bytes of packed objects and history, outside the collected heap.")
	mappedDesc    = desc("mapped_bytes", "Memory that the packed objects and history take.")
	silenceDesc   = desc("source_silence_seconds", "Time since a source last sent an event or bookmark.", "cluster", "resource")
)

var _ prometheus.Collector = &Cache{}

// Describe implements prometheus.Collector.
func (c *Cache) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{objectsDesc, bytesDesc, historyDesc, eventsDesc, watchersDesc, expiredDesc, connectedDesc, silenceDesc, syncedDesc, sinceDesc, headDesc, packedDesc, mappedDesc} {
		ch <- d
	}
	c.counters.relists.Describe(ch)
	c.counters.resumes.Describe(ch)
	c.counters.dropped.Describe(ch)
	c.counters.compared.Describe(ch)
	c.counters.different.Describe(ch)
}

// Collect implements prometheus.Collector.
func (c *Cache) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	now := c.cfg.Now.Now()
	live, mapped := c.arena.Stats()
	gauge(packedDesc, float64(live))
	gauge(mappedDesc, float64(mapped))
	for _, col := range c.collections {
		resource := col.Resource().Resource
		stats, history := col.Stats(), col.Store().History()
		for cluster, n := range stats.Objects {
			gauge(objectsDesc, float64(n), label(cluster), resource)
		}
		gauge(bytesDesc, float64(stats.Bytes), resource)
		gauge(historyDesc, float64(history.Bytes), resource)
		gauge(eventsDesc, float64(stats.Log), resource)
		gauge(headDesc, float64(stats.Head), resource)
		gauge(watchersDesc, float64(history.Watchers), resource)
		ch <- prometheus.MustNewConstMetric(expiredDesc, prometheus.CounterValue, float64(history.Expired), resource)
		for cluster, st := range col.States() {
			gauge(connectedDesc, one(st.Connected), label(cluster), resource)
			gauge(syncedDesc, one(st.Synced), label(cluster), resource)
			gauge(sinceDesc, float64(st.Since.Unix()), label(cluster), resource)
			if !st.LastEvent.IsZero() {
				gauge(silenceDesc, now.Sub(st.LastEvent).Seconds(), label(cluster), resource)
			}
		}
	}
	c.counters.relists.Collect(ch)
	c.counters.resumes.Collect(ch)
	c.counters.dropped.Collect(ch)
	c.counters.compared.Collect(ch)
	c.counters.different.Collect(ch)
}

func one(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// label names a source in a metric.
func label(name cache.ClusterName) string { return string(name) }
