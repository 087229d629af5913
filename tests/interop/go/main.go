// A small client on franz-go: `client produce|consume BOOTSTRAP TOPIC COUNT [CODEC|GROUP]`.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	verb, bootstrap, topic, argument := os.Args[1], os.Args[2], os.Args[3], os.Args[5]
	count, err := strconv.Atoi(os.Args[4])
	check(err)
	if verb == "produce" {
		produce(ctx, bootstrap, topic, count, argument)
	} else {
		consume(ctx, bootstrap, topic, count, argument)
	}
}

func produce(ctx context.Context, bootstrap, topic string, count int, codec string) {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap), kgo.AllowAutoTopicCreation(), kgo.ProducerBatchCompression(codecs[codec]))
	check(err)
	defer client.Close()
	records := make([]*kgo.Record, count)
	for index := range records {
		records[index] = &kgo.Record{
			Topic: topic, Key: []byte("key"), Value: []byte(fmt.Sprintf("value %d", index)),
			Headers: []kgo.RecordHeader{{Key: "n", Value: []byte(strconv.Itoa(index))}},
		}
	}
	check(client.ProduceSync(ctx, records...).FirstErr())
}

func consume(ctx context.Context, bootstrap, topic string, count int, group string) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	check(err)
	defer client.Close()
	for seen := 0; seen < count; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Printf("%s %s %s\n", record.Key, record.Value, record.Headers[0].Value)
			seen++
		})
	}
	check(client.CommitUncommittedOffsets(ctx))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
