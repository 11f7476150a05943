BEGIN TRANSACTION;
CREATE TABLE aside (time REAL NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, record BLOB);
INSERT INTO "aside" VALUES(1795000000.0,'message','7',CAST('{' AS BLOB));
CREATE TABLE deliveries (id TEXT PRIMARY KEY, channel TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, next_try REAL NOT NULL, record BLOB NOT NULL, attempts INTEGER NOT NULL DEFAULT 0, thread TEXT NOT NULL DEFAULT '', says TEXT NOT NULL DEFAULT '');
INSERT INTO "deliveries" VALUES('1-chat','chat','waiting',1795000000.0,1795000120.0,CAST('{"id":"1-chat","channel":"chat","created":1795000000.0,"title":"GPU 2 lost on gpu-node-1","text":"GPU 2 lost","severity":"critical","thread":"t1","incident_key":"atlas gpu-node-1","attempts":2,"next_try":1795000120.0,"error":"503","alerts":[{"status":"firing","fingerprint":"0f0f0f0f0f0f0f0f","labels":{"alertname":"GpuLost","instance":"gpu-node-1","cluster":"atlas","severity":"critical","fault":"gpu_lost"},"annotations":{"summary":"GPU 2 lost on gpu-node-1"},"startsAt":"2026-11-18T11:15:00Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus.example.org/graph"}],"says":"abc","since":1795000000.0}' AS BLOB),2,'t1','abc');
INSERT INTO "deliveries" VALUES('0-chat','chat','sent',1794999990.0,0.0,CAST('{"id":"0-chat","channel":"chat","created":1794999990.0,"title":"x","text":"y","state":"sent","ended":1794999991.0}' AS BLOB),0,'','');
CREATE TABLE drills (id TEXT PRIMARY KEY, until REAL NOT NULL, record BLOB NOT NULL);
INSERT INTO "drills" VALUES('20261118-140000-hhhhhh',1795000600.0,CAST('{"id":"20261118-140000-hhhhhh","node":"gpu-node-4","fault":"gpu_lost","severity":"critical","component":"gpu","created":1795000000.0,"until":1795000600.0,"by":"alice","ended":1795000300.0}' AS BLOB));
CREATE TABLE facts (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
INSERT INTO "facts" VALUES('isolations',CAST('{"breaker":{"open":false,"since":null,"reason":"","quiet":0.0,"counted":[],"recent":{},"known":[["gpu-node-1","gpu_lost","GPU-00000000-0000-0000-0000-000000000002"]]},"acts":[{"node":"gpu-node-1","pool":"train","time":1795000301.0,"dry_run":false,"age":600.0}],"returned":{"gpu-node-3":1794400000.0}}' AS BLOB));
INSERT INTO "facts" VALUES('repairs',CAST('[{"name":"reset","dry_run":false,"age":30.0}]' AS BLOB));
CREATE TABLE groups (key TEXT PRIMARY KEY, time REAL NOT NULL, record BLOB NOT NULL)
        WITHOUT ROWID;
INSERT INTO "groups" VALUES('a4d18a1c5f4eaacb851a1cfd2d716ae04454e5e9333f431fca40cdcaac3d5681',1795000000.0,CAST('{"truncated":0,"alerts":{"0f0f0f0f0f0f0f0f":"2026-11-18T11:15:00Z"}}' AS BLOB));
CREATE TABLE inbox (number INTEGER PRIMARY KEY AUTOINCREMENT, time REAL NOT NULL,
        reader TEXT NOT NULL, message BLOB NOT NULL);
INSERT INTO "inbox" VALUES(1,1795000000.0,'incidents',CAST('{"version":"4","groupKey":"{}:{alertname=\"GpuLost\"}","receiver":"hub","status":"firing","alerts":[{"status":"firing","fingerprint":"0f0f0f0f0f0f0f0f","labels":{"alertname":"GpuLost","instance":"gpu-node-1","cluster":"atlas","severity":"critical","fault":"gpu_lost"},"annotations":{"summary":"GPU 2 lost on gpu-node-1"},"startsAt":"2026-11-18T11:15:00Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus.example.org/graph"}],"groupLabels":{"alertname":"GpuLost"},"externalURL":"http://alertmanager.example.org"}' AS BLOB));
INSERT INTO "inbox" VALUES(2,1795000000.0,'notify',CAST('{"version":"4","groupKey":"{}:{alertname=\"GpuLost\"}","receiver":"hub","status":"firing","alerts":[{"status":"firing","fingerprint":"0f0f0f0f0f0f0f0f","labels":{"alertname":"GpuLost","instance":"gpu-node-1","cluster":"atlas","severity":"critical","fault":"gpu_lost"},"annotations":{"summary":"GPU 2 lost on gpu-node-1"},"startsAt":"2026-11-18T11:15:00Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus.example.org/graph"}],"groupLabels":{"alertname":"GpuLost"},"externalURL":"http://alertmanager.example.org"}' AS BLOB));
CREATE TABLE incidents (id TEXT PRIMARY KEY, key TEXT NOT NULL, opened REAL NOT NULL,
        resolved REAL, node TEXT NOT NULL, record BLOB NOT NULL);
INSERT INTO "incidents" VALUES('20261118-111500-dddddd','atlas gpu-node-1',1795000000.0,NULL,'gpu-node-1',CAST('{"id":"20261118-111500-dddddd","key":"atlas gpu-node-1","title":"GpuLost on gpu-node-1","severity":"critical","cluster":"atlas","node":"gpu-node-1","pool":"train","alerts":{"0f0f0f0f0f0f0f0f":{"status":"firing","fingerprint":"0f0f0f0f0f0f0f0f","labels":{"alertname":"GpuLost","instance":"gpu-node-1","cluster":"atlas","severity":"critical","fault":"gpu_lost"},"annotations":{"summary":"GPU 2 lost on gpu-node-1"},"startsAt":"2026-11-18T11:15:00Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://prometheus.example.org/graph"}},"opened":1795000000.0,"acknowledged":1795000060.0,"acknowledged_by":"alice","note":"cable reseated"}' AS BLOB));
INSERT INTO "incidents" VALUES('20261117-111500-eeeeee','atlas gpu-node-2',1794913600.0,1794920000.0,'gpu-node-2',CAST('{"id":"20261117-111500-eeeeee","key":"atlas gpu-node-2","title":"MountHangs on gpu-node-2","severity":"warning","cluster":"atlas","node":"gpu-node-2","opened":1794913600.0,"resolved":1794920000.0,"false_alarm":true,"marked_by":"bob"}' AS BLOB));
CREATE TABLE isolations (id TEXT PRIMARY KEY, node TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, record BLOB NOT NULL);
INSERT INTO "isolations" VALUES('20261118-112000-ffffff','gpu-node-1','isolated',1795000000.0,CAST('{"id":"20261118-112000-ffffff","node":"gpu-node-1","pool":"train","dry_run":false,"state":"isolated","faults":[{"node":"gpu-node-1","fault":"gpu_lost","device_id":"GPU-00000000-0000-0000-0000-000000000002","component":"gpu","severity":"critical","service":"drain_now","action":"replace","cluster":"atlas","lasted":300.0}],"present":[{"node":"gpu-node-1","fault":"gpu_lost","device_id":"GPU-00000000-0000-0000-0000-000000000002","component":"gpu","severity":"critical","service":"drain_now","action":"replace","cluster":"atlas","lasted":300.0}],"created":1795000000.0,"acted":1795000301.0,"reason":"gpu_lost","steps":[{"time":1795000000.0,"text":"waits","by":"hub"},{"time":1795000301.0,"text":"out of service","by":"hub"}],"decided":1795000300.0,"tried":true,"drained":1795000900.0}' AS BLOB));
INSERT INTO "isolations" VALUES('20261110-112000-gggggg','gpu-node-3','returned',1794300000.0,CAST('{"id":"20261110-112000-gggggg","node":"gpu-node-3","pool":"train","dry_run":true,"state":"returned","faults":[{"node":"gpu-node-3","fault":"gpu_lost","device_id":"GPU-00000000-0000-0000-0000-000000000002","component":"gpu","severity":"critical","service":"drain_now","action":"replace","cluster":"atlas","lasted":300.0}],"created":1794300000.0,"acted":1794301000.0,"ended":1794400000.0,"check":"20261118-121500-bbbbbb","steps":[{"time":1794400000.0,"text":"returned","by":"alice"}]}' AS BLOB));
CREATE TABLE repairs (id TEXT PRIMARY KEY, isolation TEXT NOT NULL, state TEXT NOT NULL,
        created REAL NOT NULL, record BLOB NOT NULL);
INSERT INTO "repairs" VALUES('20261118-112000-ffffff-reset','20261118-112000-ffffff','started',1795000901.0,CAST('{"id":"20261118-112000-ffffff-reset","isolation":"20261118-112000-ffffff","name":"reset","node":"gpu-node-1","fault":"gpu_lost","device_id":"GPU-00000000-0000-0000-0000-000000000002","action":"reset_device","state":"started","created":1795000901.0,"started":1795000902.0,"target":{"api_version":"batch/v1","kind":"Job","resource":"jobs","namespace":"repairs","name":"reset-gpu-node-1","uid":"0-1"},"timeout":600.0,"lasted":30.0,"remove":true}' AS BLOB));
CREATE TABLE seen (key TEXT PRIMARY KEY, time REAL NOT NULL) WITHOUT ROWID;
INSERT INTO "seen" VALUES('owner-1',1795000000.0);
CREATE INDEX inbox_reader ON inbox (reader, number);
CREATE INDEX deliveries_state ON deliveries (state, channel, next_try);
CREATE INDEX incidents_key ON incidents (key, opened);
CREATE INDEX incidents_opened ON incidents (opened);
CREATE INDEX isolations_state ON isolations (state, created);
CREATE INDEX isolations_node ON isolations (node, created);
CREATE INDEX repairs_state ON repairs (state, created);
CREATE INDEX repairs_isolation ON repairs (isolation, created);
CREATE INDEX deliveries_thread ON deliveries (channel, thread);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('inbox',2);
COMMIT;
PRAGMA user_version = 3;
