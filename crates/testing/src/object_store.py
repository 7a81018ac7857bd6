# An object store for tests: moto's, which checks signatures. Says where it is and by which key, then
# answers questions, a line each, until its input ends.
import hashlib, json, logging, sys
import boto3, moto.settings
from moto.server import ThreadedMotoServer

logging.getLogger('werkzeug').setLevel(logging.ERROR)
server = ThreadedMotoServer(ip_address='127.0.0.1', port=0, verbose=False)
server.start()
host, port = server.get_host_and_port()
url = f'http://{host}:{port}'
def client(service, key='root', secret='root'):
    return boto3.client(service, endpoint_url=url, region_name='eu-west-1', aws_access_key_id=key, aws_secret_access_key=secret)
iam = client('iam')
def user(name, actions):
    iam.create_user(UserName=name)
    policy = {'Version': '2012-10-17', 'Statement': [{'Effect': 'Allow', 'Action': actions, 'Resource': '*'}]}
    iam.put_user_policy(UserName=name, PolicyName='all', PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)['AccessKey']
    return key['AccessKeyId'], key['SecretAccessKey']
all_rights = user('all', ['s3:*'])
no_rights = user('none', ['s3:ListBucket'])
client('s3').create_bucket(Bucket='traces', CreateBucketConfiguration={'LocationConstraint': 'eu-west-1'})
# From now on, each request is checked.
moto.settings.INITIAL_NO_AUTH_ACTION_COUNT = 0
s3 = client('s3', *all_rights)
print(url, *all_rights, *no_rights, flush=True)
for question in sys.stdin:
    if question.strip() == 'objects':
        for it in s3.list_objects_v2(Bucket='traces').get('Contents', []):
            body = s3.get_object(Bucket='traces', Key=it['Key'])['Body'].read()
            print(it['Key'], len(body), hashlib.sha256(body).hexdigest())
    if question.strip() == 'uploads':
        for it in s3.list_multipart_uploads(Bucket='traces').get('Uploads', []):
            print(it['Key'])
    print('.', flush=True)
